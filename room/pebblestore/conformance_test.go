package pebblestore_test

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/storetest"
)

// crashes counts the power losses, so that each keeps other parts of the unsynced data.
var crashes atomic.Uint64

func open(t testing.TB, fs vfs.FS) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open("data", pebblestore.Options{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// harness opens stores on disks in memory. With crash, Reopen is a power loss: the disk keeps
// synced data and an arbitrary part of the rest.
func harness(crash bool) storetest.Harness {
	return storetest.Harness{Bubble: true, Open: func(t testing.TB) storetest.Opened {
		disk := vfs.NewCrashableMem()
		s := open(t, disk)
		return storetest.Opened{Store: s, Reopen: func() room.Store {
			t.Helper()
			left := disk
			if crash {
				left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 30, RNG: rand.New(rand.NewPCG(1, crashes.Add(1)))})
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			disk = left
			s = open(t, disk)
			return s
		}}
	}}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness(true)) }

// A store that was closed keeps sliding passes to the millisecond, as the model does; after a crash
// they may end later.
func TestModel(t *testing.T) { storetest.RunModel(t, harness(false)) }

func TestConcurrent(t *testing.T) { storetest.RunConcurrent(t, harness(true)) }
