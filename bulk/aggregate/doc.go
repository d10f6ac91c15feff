// Package aggregate reduces the outcomes of an action's jobs to a few values. Its nouns are the
// [Set] of aggregates that an action asks for, the [bulk.Outcome] of a job, and the [MapReduce] that a
// program defines itself.
//
// The result does not depend on the order in which jobs end, nor on how their outcomes are cut
// into batches, and what is kept between batches is bounded. Sums are exact decimals.
package aggregate
