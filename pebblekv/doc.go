// Package pebblekv is what all stores on Pebble need alike: reading keys, writing
// with an error where Pebble panics, keeping a reserve of the disk, and a logger.
package pebblekv
