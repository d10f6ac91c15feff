package pebblestore

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
)

// disks has the in-memory disk of each open store.
type disks struct {
	of      map[bulk.Store]disk
	crashes uint64
}

type disk struct {
	fs     *vfs.MemFS
	config bulk.Config
}

func (d *disks) open(t testing.TB, on disk) bulk.Store {
	t.Helper()
	s, err := Open("data", Options{
		Bulk: on.config, FS: on.fs, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.of[s] = on
	return s
}

// close closes a store and returns its disk.
func (d *disks) close(t testing.TB, s bulk.Store) disk {
	t.Helper()
	on := d.of[s]
	delete(d.of, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return on
}

// TestConformance runs the suite on in-memory disks. Crash is a loss of power: the disk keeps
// the synced data, and a random part of the rest.
func TestConformance(t *testing.T) {
	d := &disks{of: map[bulk.Store]disk{}}
	storetest.Run(t, storetest.Factory{
		Open: func(t testing.TB, config bulk.Config) bulk.Store {
			return d.open(t, disk{vfs.NewCrashableMem(), config})
		},
		Reopen: func(t testing.TB, s bulk.Store) bulk.Store { return d.open(t, d.close(t, s)) },
		Crash: func(t testing.TB, s bulk.Store) bulk.Store {
			d.crashes++
			left := d.of[s].fs.CrashClone(vfs.CrashCloneCfg{
				UnsyncedDataPercent: 30, RNG: rand.New(rand.NewPCG(1, d.crashes)),
			})
			on := d.close(t, s)
			on.fs = left
			return d.open(t, on)
		},
	})
}
