//go:build !linux

package filestore

import "github.com/cockroachdb/pebble/v2/vfs"

// writeAt writes buffers one after another, and returns how much was written.
func writeAt(file vfs.File, buffers [][]byte, at int64) (int64, error) {
	return writeEach(file, buffers, at)
}
