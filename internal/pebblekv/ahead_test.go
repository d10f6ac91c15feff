package pebblekv_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// noSpaceAhead is a disk without space for anything but what is written at the end of a file.
type noSpaceAhead struct{ vfs.FS }

type noSpaceFile struct{ vfs.File }

func (d noSpaceAhead) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.FS.Create(name, category)
	return noSpaceFile{file}, err
}

func (noSpaceFile) WriteAt([]byte, int64) (int, error) { return 0, errors.New("no space left") }

// The log is written over zeros, at most 1 MiB more than it has, or without them where the disk has no space for them.
func TestLogsAreWrittenOverZeros(t *testing.T) {
	t.Parallel()
	memory := vfs.NewMem()
	for name, test := range map[string]struct {
		disk  vfs.FS
		zeros bool
	}{"space": {memory, true}, "none": {noSpaceAhead{vfs.NewMem()}, false}} {
		db, err := pebblekv.Open("data", slog.New(slog.DiscardHandler), pebble.Options{FS: test.disk})
		if err != nil {
			t.Fatal(err)
		}
		const writes, bytes = 500, 300
		for i := range writes {
			if err := db.Set(fmt.Appendf(nil, "key-%d", i), make([]byte, bytes), pebble.Sync); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			size, written := logSize(t, test.disk), int64(i*bytes)
			if zeros := size > written+64<<10-1; zeros != test.zeros && i == 0 || size > 2*written+1<<20 {
				t.Fatalf("%s: the log has %d bytes after %d writes of %d", name, size, i+1, bytes)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db, err = pebblekv.Open("data", slog.New(slog.DiscardHandler), pebble.Options{FS: test.disk}); err != nil {
			t.Fatal(err)
		}
		for i := range writes {
			if value, err := pebblekv.Get(db, fmt.Appendf(nil, "key-%d", i)); err != nil || len(value) != bytes {
				t.Fatalf("%s: write %d has %d bytes, %v", name, i, len(value), err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// logSize returns the length of the newest log.
func logSize(t *testing.T, disk vfs.FS) int64 {
	t.Helper()
	names, err := disk.List("data")
	if err != nil {
		t.Fatal(err)
	}
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			newest = max(newest, name)
		}
	}
	info, err := disk.Stat("data/" + newest)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
