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
	sync.Locker
	s      *Store
	before [5]int
	most   int
}

func (l *watchedLock) Lock() {
	l.Locker.Lock()
	l.before = l.count()
}

func (l *watchedLock) Unlock() {
	for i, now := range l.count() {
		l.most = max(l.most, now-l.before[i], l.before[i]-now)
	}
	l.Locker.Unlock()
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
	lock := &watchedLock{Locker: s.mu, s: s}
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

// countedLock counts how often Store.mu is locked.
type countedLock struct {
	sync.Locker
	locked int
}

func (l *countedLock) Lock() {
	l.Locker.Lock()
	l.locked++
}

// TestReadsWaitForOneOperation: operations take turns for what reads lock, and reads take no turns with them.
func TestReadsWaitForOneOperation(t *testing.T) {
	s := openBench(t, bulk.Config{RequestsPerSecond: -1})
	ctx := context.Background()
	for i := range 3 {
		if err := waitSmall(s, i, "tenant"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Transition(ctx, "a2", bulk.Transition{Kind: bulk.Cancel}); err != nil {
		t.Fatal(err)
	}
	lock := &countedLock{Locker: s.mu}
	s.mu = lock
	for name, read := range map[string]func() error{
		"an action":          func() error { _, err := s.Action(ctx, "a0"); return err },
		"a finished one":     func() error { _, err := s.Action(ctx, "a2"); return err },
		"a list":             func() error { _, err := s.Actions(ctx, bulk.ActionFilter{}); return err },
		"a page":             func() error { _, err := s.Actions(ctx, bulk.ActionFilter{After: "a0", Limit: 1}); return err },
		"unfinished actions": func() error { _, err := s.Actions(ctx, bulk.ActionFilter{Unfinished: true}); return err },
		"one by number":      func() error { _, err := s.Actions(ctx, bulk.ActionFilter{Number: 1}); return err },
		"a job":              func() error { _, err := s.Job(ctx, "a0", 0); return err },
		"dead letters":       func() error { _, err := s.DeadLetters(ctx, "a0", 0, 1); return err },
		"settings":           func() error { _, err := s.Settings(ctx); return err },
	} {
		if err := read(); err != nil || lock.locked > 0 {
			t.Errorf("%s: %v, and %d turns among operations, want none", name, err, lock.locked)
		}
		lock.locked = 0
	}
	turns := lock.Locker.(*inTurn)
	free := func() [2]bool { return [2]bool{tryLock(&turns.turn), tryLock(&s.reads)} }
	lock.Lock()
	if got := free(); got != [2]bool{} {
		t.Errorf("beside an operation, its turn and the lock of reads are free: %v", got)
	}
	lock.Unlock()
	turns.turn.Lock() // others that wait are here
	defer turns.turn.Unlock()
	if got := free(); got != [2]bool{false, true} {
		t.Errorf("between operations, their turn and the lock of reads are free: %v", got)
	}
}

func tryLock(m interface {
	TryLock() bool
	Unlock()
}) bool {
	free := m.TryLock()
	if free {
		m.Unlock()
	}
	return free
}
