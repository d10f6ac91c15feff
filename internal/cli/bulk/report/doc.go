// Package report follows the actions of a run and reports their results: a row for
// each tenant, totals, merged aggregates and the most frequent errors.
package report
