package pebblestore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// Verify reads all files of the store in a directory, without changing it, and returns what is
// wrong, with the path of the file. Exists reports whether there is a store.
func Verify(ctx context.Context, dir string) (exists bool, problems []error) {
	if !pebblekv.Exists(vfs.Default, dir) {
		return false, nil
	}
	return true, pebblekv.Verify(ctx, vfs.Default, dir, metaVersion, 1, FormatVersion, func(*pebble.DB) error { return nil })
}
