package watch

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/room"
)

// schedule is a heap of streams by when they are due.
type schedule []*stream

func (q schedule) Len() int           { return len(q) }
func (q schedule) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q schedule) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].at, q[j].at = i+1, j+1 }

// Push implements heap.Interface.
func (q *schedule) Push(x any) {
	s := x.(*stream)
	*q = append(*q, s)
	s.at = len(*q)
}

// Pop implements heap.Interface.
func (q *schedule) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	s.at = 0
	return s
}

// remove takes out a stream that may be in.
func (q *schedule) remove(s *stream) {
	if s.at > 0 {
		heap.Remove(q, s.at-1)
	}
}

// batch is what is asked about at once: streams of one room.
type batch struct {
	room    string
	claim   bool
	streams []*stream
}

// put schedules a stream, unless it was dropped meanwhile.
func (h *Hub) put(s *stream, after time.Duration) {
	// Spread by a tenth, so that those who came together do not stay together.
	after -= time.Duration(rand.Int64N(int64(after)/10 + 1))
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.slot == removed {
		return
	}
	s.due = time.Now().Add(after)
	heap.Push(&h.due, s)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// turns hands out what is due, in batches. It waits for a worker, so that no
// more is under way than the workers can do.
func (h *Hub) turns(ctx context.Context) error {
	turn := time.NewTicker(turnTime)
	defer turn.Stop()
	for {
		batches, left := h.takeDue(time.Now())
		for _, b := range batches {
			select {
			case h.batches <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !left {
			turn.Stop()
			select {
			case <-h.wake:
				turn.Reset(turnTime)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-turn.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeDue takes what is due out of the schedule, and tells whether there is more
// in it.
func (h *Hub) takeDue(now time.Time) (batches []batch, left bool) {
	type kind struct {
		room  string
		claim bool
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := map[kind]int{}
	for len(h.due) > 0 && !h.due[0].due.After(now) {
		s := heap.Pop(&h.due).(*stream)
		k := kind{s.spec.Room, s.spec.Claim}
		i, begun := last[k]
		if !begun || len(batches[i].streams) == room.MaxAsk {
			i = len(batches)
			last[k] = i
			batches = append(batches, batch{room: k.room, claim: k.claim})
		}
		batches[i].streams = append(batches[i].streams, s)
	}
	return batches, len(h.due) > 0
}

// work asks for batches and tells what came of it.
func (h *Hub) work(ctx context.Context) error {
	askers := make([]room.Asker, 0, room.MaxAsk)
	for {
		select {
		case b := <-h.batches:
			if here := h.here(b.streams); len(here) > 0 {
				b.streams = here
				h.ask(ctx, b, askers)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// here drops the streams whose client has gone, and returns the others: nobody
// is kept in line by a connection that is not there.
func (h *Hub) here(streams []*stream) []*stream {
	here := streams[:0]
	for _, s := range streams {
		if s.gone() {
			h.drop(s)
			continue
		}
		here = append(here, s)
	}
	return here
}

func (h *Hub) ask(ctx context.Context, b batch, askers []room.Asker) {
	for _, s := range b.streams {
		askers = append(askers, room.Asker{Ticket: s.spec.Ticket})
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	results := h.engine.AskAll(asking, b.room, askers, b.claim)
	cancel()
	for i, s := range b.streams {
		h.tell(s, &results[i])
	}
}

// tell writes a result to a stream, and schedules the next or ends it.
func (h *Hub) tell(s *stream, result *room.Result) {
	now := time.Now()
	if reason, final := ended(result.Err); final {
		// It is over with or without that last event.
		_ = s.part(goneEvent(reason), now)
		h.metrics.events.Inc()
		h.drop(s)
		return
	}
	if result.Err != nil {
		h.put(s, awayTime)
		return
	}
	told, err := s.answer(&result.Answer, now)
	if err != nil {
		h.drop(s)
		return
	}
	if told {
		h.metrics.events.Inc()
	}
	h.put(s, Pace(&result.Answer))
}

// pulses keeps all streams alive, asked about or not.
func (h *Hub) pulses(ctx context.Context) error {
	pulse := time.NewTicker(pulseTime)
	defer pulse.Stop()
	var all []*stream
	for {
		select {
		case <-pulse.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		h.mu.Lock()
		all = append(all[:0], h.all...)
		h.mu.Unlock()
		now := time.Now()
		for _, s := range all {
			if err := s.pulse(now); err != nil {
				if errors.Is(err, errSlow) {
					h.metrics.slow.Inc()
				}
				h.drop(s)
			}
		}
		clear(all)
	}
}
