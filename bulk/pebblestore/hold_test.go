package pebblestore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
)

// watchedLock remembers the most jobs or actions that moved on during one hold of Store.mu.
type watchedLock struct {
	sync.Mutex
	s      *Store
	before [5]int
	most   int
}

func (l *watchedLock) Lock() {
	l.Mutex.Lock()
	l.before = l.count()
}

func (l *watchedLock) Unlock() {
	for i, now := range l.count() {
		l.most = max(l.most, now-l.before[i], l.before[i]-now)
	}
	l.Mutex.Unlock()
}

// count counts what Fetch, Admit, Lease, Settle and Changes move on.
func (l *watchedLock) count() (counts [5]int) {
	counts[4] = len(l.s.untold)
	if k := l.s.types["no-op"]; k != nil {
		counts[1], counts[2], counts[3] = k.ready.len(), int(k.inFlight), int(k.finished)
	}
	if t := l.s.targets[bulk.HandlersOf("no-op")]; t != nil {
		counts[0] = int(t.waiting) / len(few)
	}
	return counts
}

// TestHoldsAreBounded: however much an operation does, it does not keep others from reading for longer
// than it takes to look at holdMost jobs or actions.
func TestHoldsAreBounded(t *testing.T) {
	const actions = 5*holdMost + 1
	s, err := Open("", Options{Bulk: bulk.Config{RequestsPerSecond: -1}, Logger: slog.New(slog.DiscardHandler), FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	lock := &watchedLock{s: s}
	s.mu = lock
	for i := range actions {
		if err := waitSmall(s, i, fmt.Sprint("tenant-", i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	var grants []bulk.Grant
	var jobs []bulk.Job
	for _, operation := range []struct {
		name string
		do   func() error
	}{
		{"Fetch", func() error {
			return s.Fetch(ctx, func(b *bulk.Backlog) {
				grants, _ = bulk.Divide(b, bulk.Free{Total: actions, Types: map[string]int64{"no-op": actions}})
			})
		}},
		{"Admit", func() error { _, err := s.Admit(ctx, grants); return err }},
		{"Lease", func() (err error) {
			jobs, err = s.Lease(ctx, bulk.LeaseRequest{Types: []string{"no-op"}, Max: actions, LeaseFor: time.Minute, Local: true})
			return err
		}},
		{"Settle", func() error {
			settlements := make([]bulk.Settlement, len(jobs))
			for i := range jobs {
				settlements[i] = bulk.Settlement{Lease: jobs[i].Lease, Kind: bulk.Succeeded}
			}
			_, err := s.Settle(ctx, settlements)
			return err
		}},
		{"Changes", func() error { _, err := s.Changes(ctx, actions); return err }},
	} {
		lock.most = 0
		if err := operation.do(); err != nil {
			t.Fatal(err)
		}
		if least := holdMost / 2; lock.most > holdMost || lock.most < least {
			t.Errorf("%s moved %d jobs or actions on in one hold, want %d at most, and %d of so many", operation.name, lock.most, holdMost, least)
		}
	}
	if len(jobs) != actions {
		t.Errorf("%d jobs ran, want %d", len(jobs), actions)
	}
}
