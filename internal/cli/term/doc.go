// Package term prints for people and programs: tables, lists of facts, bars that
// are redrawn in place, lines of progress, and JSON. A Screen is a stream with what
// is known of its terminal; without a terminal, 80 columns are assumed and nothing is
// redrawn. Text from outside goes through Printable.
package term
