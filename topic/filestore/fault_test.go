package filestore_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// faultyDisk is a disk whose operations on files of logs can be held and made to fail.
type faultyDisk struct {
	vfs.FS
	under *vfs.MemFS

	mu    sync.Mutex
	fault func(errorfs.OpKind) error
	// entered gets a value when a sync waits for held to be closed.
	held, entered chan struct{}
}

func newFaultyDisk() *faultyDisk {
	d := &faultyDisk{under: vfs.NewCrashableMem()}
	d.FS = errorfs.Wrap(d.under, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		d.mu.Lock()
		fault, held, entered := d.fault, d.held, d.entered
		d.mu.Unlock()
		if op.Kind == errorfs.OpFileSyncData && held != nil {
			entered <- struct{}{}
			<-held
		}
		if fault != nil {
			return fault(op.Kind)
		}
		return nil
	}))
	return d
}

func (d *faultyDisk) set(fault func(errorfs.OpKind) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// hold makes syncs wait. The result waits for the first one, and lets them go on.
func (d *faultyDisk) hold() (wait, release func()) {
	held, entered := make(chan struct{}), make(chan struct{}, 100)
	d.mu.Lock()
	d.held, d.entered = held, entered
	d.mu.Unlock()
	return func() { <-entered }, func() {
		d.mu.Lock()
		d.held = nil
		d.mu.Unlock()
		close(held)
	}
}

// fails makes operations of a kind fail from one to another, counted from 1.
func fails(kind errorfs.OpKind, from, to int64, err error) func(errorfs.OpKind) error {
	var seen atomic.Int64
	return func(op errorfs.OpKind) error {
		if op != kind {
			return nil
		}
		if n := seen.Add(1); n < from || n > to {
			return nil
		}
		return err
	}
}

// After a failed write or fsync nothing is acknowledged, what was acknowledged can be read, and
// the log continues when the store is opened again.
func TestBroken(t *testing.T) {
	t.Parallel()
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpFileSyncData} {
		disk := newFaultyDisk()
		s := open(t, "data", filestore.Options{FS: disk})
		l, other := logOf(t, s, "log"), logOf(t, s, "other")
		mustAppend(t, l, run(1, 5, 1000)...)
		disk.set(fails(kind, 1, 1<<30, syscall.EIO))
		for i, err := range appendAll(l, run(6, 8, 1000)...) {
			if !errors.Is(err, topic.ErrUncertain) && !errors.Is(err, filestore.ErrBroken) {
				t.Fatalf("append %d with a broken disk: %v", i, err)
			}
		}
		<-s.Failed()
		if err := s.Err(); !errors.Is(err, filestore.ErrBroken) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("the store has failed with %v", err)
		}
		disk.set(nil)
		if err := appendAll(l, made(6, 1, 10))[0]; !errors.Is(err, filestore.ErrBroken) {
			t.Fatalf("append after a failure: %v", err)
		}
		holds(t, l, run(1, 5, 1000)...)
		mustAppend(t, other, made(1, 1, 10))
		closed(t, s)

		s = open(t, "data", filestore.Options{FS: disk})
		l = logOf(t, s, "log")
		all, err := readAll(t.Context(), l)
		if err != nil || len(all) < 5 {
			t.Fatalf("%d entries, 5 were acknowledged: %v", len(all), err)
		}
		mustAppend(t, l, made(uint64(len(all)+1), 1, 10))
		closed(t, s)
	}
}

// After a failed fsync the system's cache may have entries that are not on the disk. They are
// once the store was opened again.
func TestEntriesAfterAFailedSyncAreWrittenAgain(t *testing.T) {
	t.Parallel()
	disk := newFaultyDisk()
	s := open(t, "data", filestore.Options{FS: disk})
	l := logOf(t, s, "log")
	mustAppend(t, l, run(1, 5, 3000)...)
	disk.set(fails(errorfs.OpFileSyncData, 1, 1<<30, syscall.EIO))
	if errs := appendAll(l, run(6, 8, 3000)...); errors.Join(errs...) == nil {
		t.Fatal("appends were acknowledged without a sync")
	}
	closed(t, s)

	var rewritten atomic.Int64
	disk.set(func(op errorfs.OpKind) error {
		if op == errorfs.OpFileWriteAt {
			rewritten.Add(1)
		}
		return nil
	})
	s = open(t, "data", filestore.Options{FS: disk})
	seen, err := readAll(t.Context(), logOf(t, s, "log"))
	if err != nil || len(seen) < 6 || rewritten.Load() == 0 {
		t.Fatalf("%d entries, %d writes: %v", len(seen), rewritten.Load(), err)
	}
	left := disk.under.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	s = open(t, "data", filestore.Options{FS: left})
	holds(t, logOf(t, s, "log"), seen...)
	closed(t, s)
}

// A write that finds the disk full leaves nothing behind, not even whole entries of those that
// were written together; the log continues when there is space.
func TestFull(t *testing.T) {
	t.Parallel()
	disk := newFaultyDisk()
	s := open(t, "data", filestore.Options{FS: disk})
	l := logOf(t, s, "log")
	wait, release := disk.hold()
	first := make(chan error, 1)
	l.Append(made(1, 1, 100), func(err error) { first <- err })
	wait()
	disk.set(fails(errorfs.OpFileWriteAt, 6, 6, syscall.ENOSPC)) // two entries are whole by then
	outcomes := make(chan error, 4)
	for _, e := range run(2, 5, 100) {
		l.Append(e, func(err error) { outcomes <- err })
	}
	release()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := <-outcomes; !errors.Is(err, topic.ErrFull) {
			t.Fatalf("append to a full disk: %v", err)
		}
	}
	disk.set(nil)
	mustAppend(t, l, made(2, 2, 100)) // in its place, and as long
	want := []topic.Entry{made(1, 1, 100), made(2, 2, 100)}
	holds(t, l, want...)
	left := disk.under.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	s = open(t, "data", filestore.Options{FS: left})
	holds(t, logOf(t, s, "log"), want...)
	closed(t, s)
}

// smallDisk has a number of free bytes.
type smallDisk struct {
	vfs.FS
	free uint64
}

func (d smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free}, nil
}

// Records are refused before the disk is full; what is needed to remove them is not.
func TestReserve(t *testing.T) {
	t.Parallel()
	s := open(t, "data", filestore.Options{FS: smallDisk{vfs.NewMem(), 3 << 20}, DiskReserve: 4 << 20})
	l := logOf(t, s, "log")
	for range 2 { // the refused sequence is not taken
		if err := appendAll(l, made(1, 1, 100))[0]; !errors.Is(err, topic.ErrFull) {
			t.Fatalf("append into the reserve: %v", err)
		}
	}
	mustAppend(t, l, made(1, 0, 0))
	if err := l.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Meta().Put(t.Context(), "key", make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Meta().Put(t.Context(), "large", make([]byte, 2<<20), 0); !errors.Is(err, topic.ErrFull) {
		t.Fatalf("a put into the other half: %v", err)
	}
	closed(t, s)
}

// A failed write of the metadata is no change, and the store says that it has failed.
func TestBrokenMetadata(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	disk := vfs.NewCrashableMem()
	s := open(t, "data", filestore.Options{FS: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasPrefix(op.Path, "data/meta") && op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	}))})
	revision, err := s.Meta().Put(t.Context(), "key", []byte("old"), 0)
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	for range 2 {
		if _, err := s.Meta().Put(t.Context(), "key", []byte("new"), revision); err == nil {
			t.Fatal("a put was acknowledged without a sync")
		}
	}
	<-s.Failed()
	left := disk.CrashClone(vfs.CrashCloneCfg{})
	_ = s.Close()
	s = open(t, "data", filestore.Options{FS: left})
	if item, err := s.Meta().Get(t.Context(), "key"); err != nil || string(item.Value) != "old" {
		t.Fatalf("the key is %q: %v", item.Value, err)
	}
	closed(t, s)
}
