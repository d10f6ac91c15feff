package filestore_test

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		child(dir)
		return
	}
	rapidtest.Checks(30, 60)
	leaks.Main(m)
}

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, dir string, options filestore.Options) *filestore.Store {
	t.Helper()
	if options.Logger == nil {
		options.Logger = quiet
	}
	s, err := filestore.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t testing.TB, s topic.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// disks opens stores on disks in memory. A crash is a power cut: the disk keeps what was
// synced, and arbitrary blocks of the rest.
type disks struct {
	options filestore.Options
	of      map[topic.Store]*vfs.MemFS
	crashes uint64
}

func (d *disks) open(t testing.TB, disk *vfs.MemFS) topic.Store {
	options := d.options
	options.FS = disk
	s := open(t, "data", options)
	d.of[s] = disk
	return s
}

// crash returns what a power cut leaves of a disk now.
func (d *disks) crash(s topic.Store) *vfs.MemFS {
	d.crashes++
	return d.of[s].CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, d.crashes))})
}

func factory(options filestore.Options) storetest.Factory {
	d := &disks{options: options, of: map[topic.Store]*vfs.MemFS{}}
	f := storetest.Factory{
		Open: func(t testing.TB) topic.Store { return d.open(t, vfs.NewCrashableMem()) },
		Reopen: func(t testing.TB, s topic.Store) topic.Store {
			closed(t, s)
			return d.open(t, d.of[s])
		},
	}
	if options.SyncInterval == 0 {
		f.Crash = func(t testing.TB, s topic.Store) topic.Store {
			left := d.crash(s)
			closed(t, s)
			return d.open(t, left)
		}
	}
	return f
}

// small makes logs of many files, of which few stay open.
var small = filestore.Options{SegmentBytes: 20_000, OpenFiles: 3}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, factory(filestore.Options{}))
}

func TestConformanceOfManyFiles(t *testing.T) {
	t.Parallel()
	storetest.RunLogs(t, factory(small))
}

func TestConformanceAtIntervals(t *testing.T) {
	t.Parallel()
	options := small
	options.SyncInterval = time.Millisecond
	storetest.RunLogs(t, factory(options))
}

func TestMade(t *testing.T) {
	t.Parallel()
	storetest.RunMade(t, factory(filestore.Options{}))
}

// TestConformanceOnDisk uses the operating system's files.
func TestConformanceOnDisk(t *testing.T) {
	t.Parallel()
	dirs := map[topic.Store]string{}
	openIn := func(t testing.TB, dir string) topic.Store {
		s := open(t, dir, small)
		dirs[s] = dir
		return s
	}
	storetest.RunLogs(t, storetest.Factory{
		Open: func(t testing.TB) topic.Store { return openIn(t, t.TempDir()) },
		Reopen: func(t testing.TB, s topic.Store) topic.Store {
			closed(t, s)
			return openIn(t, dirs[s])
		},
	})
}
