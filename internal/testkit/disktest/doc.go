// Package disktest has disks in memory that fail, for tests of stores on Pebble.
//
//   - [Full] is a disk with a bound on its space.
//   - [Syncing] is a disk whose fsyncs are slow or fail, as a test says.
package disktest
