// Package tidy holds the house rules as tests: which package may import which,
// that every package says what it is, how long files and functions may be, that
// what the docs point at exists, and what does not belong into the source or
// the binary.
//
// A test here fails with what would be right. The tables of the rules are in
// rules_test.go; an exception is a row there, with its reason.
package tidy
