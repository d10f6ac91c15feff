// Package pebblestore keeps rooms in Pebble, in one process.
package pebblestore
