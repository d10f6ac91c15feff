// Package localtest has a simulated bulk engine for tests of reports and displays: it finishes a
// given number of jobs per second, in virtual time.
package localtest
