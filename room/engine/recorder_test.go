package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/room"
)

// recorder is a publisher that keeps its events. When it fails, it has kept a part, as a publisher
// to several partitions may.
type recorder struct {
	mu      sync.Mutex
	calls   int
	fail    func(call int) bool
	notices []room.Notice
}

func (p *recorder) Publish(_ context.Context, notices []room.Notice) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.fail != nil && p.fail(p.calls) {
		p.notices = append(p.notices, notices[:len(notices)/2]...)
		return errors.New("not taken")
	}
	p.notices = append(p.notices, notices...)
	return nil
}

// count returns how many notices came, with repeats.
func (p *recorder) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.notices)
}

// arrived returns the events as a consumer that drops repeats sees them, and checks that they are
// the whole history of one room in order.
func (p *recorder) arrived(t testing.TB) (events []room.Notice) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]room.Notice{}
	for _, n := range p.notices {
		before, again := seen[n.ID()]
		if again {
			if before != n {
				t.Errorf("two events have the ID %s: %+v and %+v", n.ID(), before, n)
			}
			continue
		}
		seen[n.ID()] = n
		events = append(events, n)
		if want := int64(len(events)); n.Sequence != want {
			t.Errorf("event %d came where %d was due", n.Sequence, want)
		}
	}
	return events
}
