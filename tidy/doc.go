// Package tidy has the rules of this repository as tests: which package may import which, that
// every package has a doc comment, how long files and functions may be, that links and names in the
// docs exist, and what must not be in the source or the binary.
//
// Each failure names the remedy. The tables of the rules are in rules_test.go; an exception is a
// row there, with its reason.
package tidy
