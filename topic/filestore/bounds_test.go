package filestore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// Many logs share a few open files.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	const most = 8
	disk := &countingFS{FS: vfs.NewMem()}
	s := open(t, "data", filestore.Options{FS: disk, OpenFiles: most})
	var logs []topic.Log
	for i := range 50 {
		l := logOf(t, s, fmt.Sprint("log", i))
		mustAppend(t, l, made(1, byte(i), 100))
		logs = append(logs, l)
	}
	for round := range uint64(3) {
		for i, l := range logs {
			mustAppend(t, l, made(round+2, byte(i), 100))
			if _, err := topic.ReadEntry(t.Context(), l, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := disk.most.Load(); got > most+1 {
		t.Errorf("%d files were open, want at most %d and the one in use", got, most)
	}
	closed(t, s)
	if got := disk.files.Load(); got != 0 {
		t.Errorf("%d files are open after the store was closed", got)
	}
}

// Opening a log reads what is new, not all of it.
func TestOpeningReadsLittle(t *testing.T) {
	t.Parallel()
	disk := &countingFS{FS: vfs.NewCrashableMem()}
	s := open(t, "data", filestore.Options{FS: disk})
	l := logOf(t, s, "log")
	const last = 300 // of 100 KiB
	for from := uint64(1); from < last; from += 10 {
		mustAppend(t, l, run(from, from+9, 100<<10)...)
	}
	killed := &countingFS{FS: disk.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})}
	closed(t, s)
	disk.read.Store(0)
	for name, check := range map[string]struct {
		disk *countingFS
		most int64
	}{"closed": {disk, 1 << 10}, "killed": {killed, 8 << 20}} {
		s := open(t, "data", filestore.Options{FS: check.disk})
		l := logOf(t, s, "log")
		if got := check.disk.read.Load(); got > check.most {
			t.Errorf("%s: %d bytes of a log of 30 MiB were read to open it, want at most %d", name, got, check.most)
		}
		check.disk.read.Store(0)
		if _, err := topic.ReadEntry(t.Context(), l, 77); err != nil {
			t.Error(err)
		}
		if got := check.disk.read.Load(); got > 1<<20 {
			t.Errorf("%s: %d bytes were read for an entry of 100 KiB", name, got)
		}
		closed(t, s)
	}
}

// Trimmed entries give their space back, all of it when the log is empty.
func TestTrimmedSpace(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	s := open(t, "data", filestore.Options{FS: disk, SegmentBytes: 10_000})
	l := logOf(t, s, "log")
	mustAppend(t, l, run(1, 100, 1000)...)
	for _, test := range []struct{ before, most uint64 }{{50, 71_000}, {101, 100}} {
		if err := l.Trim(t.Context(), test.before); err != nil {
			t.Fatal(err)
		}
		var bytes int64
		for _, path := range append(segments(t, disk, ".log"), segments(t, disk, ".points")...) {
			bytes += sizeOf(t, disk, path)
		}
		if bytes > int64(test.most) {
			t.Errorf("%d bytes are used after a trim to %d, want at most %d", bytes, test.before, test.most)
		}
	}
	mustAppend(t, l, made(101, 1, 10))
	closed(t, s)
}

// A deleted log leaves no files, even if the process ended before they were removed.
func TestDeletedSpace(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := open(t, "data", filestore.Options{FS: disk})
	mustAppend(t, logOf(t, s, "log"), made(1, 1, 10))
	if err := disk.MkdirAll("data/logs/left.7", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteLog(t.Context(), "log"); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	s = open(t, "data", filestore.Options{FS: disk})
	defer closed(t, s)
	if names, err := disk.List("data/logs"); err != nil || len(names) != 0 {
		t.Errorf("folders are left: %v, %v", names, err)
	}
}
