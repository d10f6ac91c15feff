package filestore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// promise is what was acknowledged before a power cut.
type promise struct {
	mu    sync.Mutex
	over  bool // what is acknowledged from now on may have been after the cut
	acks  int
	first map[string]uint64 // by log
	last  map[string]uint64
	key   uint64 // the revision of a key
	off   chan struct{}
}

// note records an acknowledgement.
func (p *promise) note(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.acks++
		set()
	}
}

// cut reports whether the power is off, which it is after so many acknowledgements.
func (p *promise) cut(after int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && p.acks >= after {
		p.over = true
		close(p.off)
	}
	return p.over
}

// appends appends to a log with several entries in flight, and trims it, until the power is
// off.
func (p *promise) appends(t *testing.T, s topic.Store, name string, variant byte, after int) error {
	random := rand.New(rand.NewPCG(uint64(variant), uint64(len(name))))
	l := logOf(t, s, name)
	_, sequence, err := l.Ends(t.Context())
	if err != nil {
		return err
	}
	flights := make(chan struct{}, 6)
	failed := make(chan error, 1)
	for !p.cut(after) && err == nil {
		sequence++
		n := sequence
		flights <- struct{}{}
		l.Append(made(n, variant, random.IntN(9000)), func(err error) {
			if err != nil {
				failed <- err
			}
			p.note(func() { p.last[name] = n })
			<-flights
		})
		if random.IntN(30) == 0 {
			p.mu.Lock()
			first := min(p.last[name], max(p.last[name], 20)-20+uint64(random.IntN(20)))
			p.mu.Unlock()
			err = l.Trim(t.Context(), first)
			p.note(func() { p.first[name] = max(p.first[name], first) })
		}
	}
	for range cap(flights) {
		flights <- struct{}{}
	}
	select {
	case failure := <-failed:
		return errors.Join(err, failure)
	default:
		return err
	}
}

// puts changes a key until the power is off.
func (p *promise) puts(t *testing.T, s topic.Store, after int) error {
	for !p.cut(after) {
		item, err := s.Meta().Get(t.Context(), "key")
		if err != nil && !errors.Is(err, topic.ErrNotFound) {
			return err
		}
		revision, err := s.Meta().Put(t.Context(), "key", []byte("value"), item.Revision)
		if err != nil {
			return err
		}
		p.note(func() { p.key = revision })
	}
	return nil
}

// holds checks a promise after a power cut. If not durable, entries that were acknowledged
// within the interval may be lost, from the end.
func (p *promise) holds(t *testing.T, s topic.Store, durable bool) {
	t.Helper()
	for name := range p.last {
		l := logOf(t, s, name)
		first, last, err := l.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t.Context(), l); err != nil {
			t.Fatalf("log %s: %v", name, err)
		}
		if durable && last < p.last[name] {
			t.Fatalf("log %s ends at %d, %d was acknowledged", name, last, p.last[name])
		}
		if first < p.first[name] {
			t.Fatalf("log %s begins at %d, it was trimmed to %d", name, first, p.first[name])
		}
		p.last[name] = last
	}
	item, err := s.Meta().Get(t.Context(), "key")
	if p.key > 0 && err != nil || item.Revision < p.key {
		t.Fatalf("the key is at revision %d: %v; %d was acknowledged", item.Revision, err, p.key)
	}
}

// Power is lost during many concurrent operations, again and again on one disk. Acknowledged
// entries are there, in their order; trimmed ones are not; nothing appears that was not appended.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	rounds := 12
	if os.Getenv("SLUICE_LONG") != "" {
		rounds = 150
	}
	for name, interval := range map[string]time.Duration{"synced": 0, "at intervals": 2 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := filestore.Options{SegmentBytes: 60_000, OpenFiles: 2, SyncInterval: interval}
			d := &disks{options: options, of: map[topic.Store]*vfs.MemFS{}, crashes: uint64(interval)}
			disk := vfs.NewCrashableMem()
			p := &promise{first: map[string]uint64{}, last: map[string]uint64{}}
			for round := range rounds {
				disk = powerCut(t, d, disk, p, round)
			}
			s := d.open(t, disk)
			p.holds(t, s, interval == 0)
			closed(t, s)
		})
	}
}

func powerCut(t *testing.T, d *disks, disk *vfs.MemFS, p *promise, round int) *vfs.MemFS {
	s := d.open(t, disk)
	p.holds(t, s, d.options.SyncInterval == 0)
	p.over, p.acks, p.off = false, 0, make(chan struct{})
	after := 30 + round*17%200
	var working sync.WaitGroup
	for i := range 3 {
		working.Go(func() {
			if err := p.appends(t, s, fmt.Sprint("log", i), byte(round), after); err != nil {
				t.Error(err)
			}
		})
	}
	working.Go(func() {
		if err := p.puts(t, s, after); err != nil {
			t.Error(err)
		}
	})
	<-p.off
	left := d.crash(s)
	working.Wait()
	closed(t, s)
	return left
}

// After a trim within the interval a power cut takes no entry that stays: otherwise the log would
// end before it begins.
func TestPowerCutAfterTrim(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := open(t, "data", filestore.Options{FS: disk, SyncInterval: time.Hour})
	l := logOf(t, s, "log")
	mustAppend(t, l, run(1, 10, 100)...)
	if err := l.Trim(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	left := disk.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	s = open(t, "data", filestore.Options{FS: left})
	holds(t, logOf(t, s, "log"), run(5, 10, 100)...)
	closed(t, s)
}
