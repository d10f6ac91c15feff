// Package sim holds whole-system scenarios in virtual time: the real engine and
// the real store, on a file system in memory, with targets that behave as those
// of users do. Hours of schedule run in seconds, and every run is the same.
package sim
