// Package pebblekv has the common parts of stores on Pebble: reading keys, writing
// with an error where Pebble panics, a reserve of free disk space, and a logger.
package pebblekv
