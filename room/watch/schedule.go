package watch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// batch is streams of one room that one request to the engine covers.
type batch struct {
	room    string
	claim   bool
	streams []*stream
}

// put schedules a stream, unless it was dropped.
func (h *Hub) put(s *stream, after time.Duration) {
	// Spread by a tenth, so that streams that opened together do not stay together.
	after -= time.Duration(rand.Int64N(int64(after)/10 + 1))
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.slot == removed {
		return
	}
	s.due = time.Now().Add(after)
	h.due.Set(s)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// dispatch hands due streams to the workers, in batches. It waits for a free worker,
// which bounds the batches in flight.
func (h *Hub) dispatch(ctx context.Context) error {
	tick := time.NewTicker(dueTime)
	defer tick.Stop()
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
			tick.Stop()
			select {
			case <-h.wake:
				tick.Reset(dueTime)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeDue removes the due streams from the schedule, and reports whether any are
// left.
func (h *Hub) takeDue(now time.Time) (batches []batch, left bool) {
	type group struct {
		room  string
		claim bool
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := map[group]int{}
	for s := h.due.First(); s != nil && !s.due.After(now); s = h.due.First() {
		h.due.Remove(s)
		k := group{s.spec.Room, s.spec.Claim}
		i, begun := last[k]
		if !begun || len(batches[i].streams) == room.MaxAsk {
			i = len(batches)
			last[k] = i
			batches = append(batches, batch{room: k.room, claim: k.claim})
		}
		batches[i].streams = append(batches[i].streams, s)
	}
	return batches, h.due.Len() > 0
}

// work asks the engine about batches, and delivers the results.
func (h *Hub) work(ctx context.Context) error {
	askers := make([]engine.Asker, 0, room.MaxAsk)
	for {
		select {
		case b := <-h.batches:
			if connected := h.connected(b.streams); len(connected) > 0 {
				b.streams = connected
				h.ask(ctx, b, askers)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connected drops the streams of clients that are gone, and returns the others: a
// closed connection keeps no place in the queue.
func (h *Hub) connected(streams []*stream) []*stream {
	connected := streams[:0]
	for _, s := range streams {
		if s.gone() {
			h.drop(s)
			continue
		}
		connected = append(connected, s)
	}
	return connected
}

func (h *Hub) ask(ctx context.Context, b batch, askers []engine.Asker) {
	for _, s := range b.streams {
		askers = append(askers, engine.Asker{Ticket: s.spec.Ticket})
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	results := h.engine.AskAll(asking, b.room, askers, b.claim)
	cancel()
	for i, s := range b.streams {
		h.deliver(s, &results[i])
	}
}

// deliver writes a result to a stream, and schedules the next ask or ends the stream.
func (h *Hub) deliver(s *stream, result *engine.Result) {
	now := time.Now()
	if reason, final := ended(result.Err); final {
		// The stream ends with or without this last event.
		_ = s.part(goneEvent(reason), now)
		h.metrics.events.Inc()
		h.drop(s)
		return
	}
	if result.Err != nil {
		h.put(s, retryTime)
		return
	}
	sent, err := s.answer(&result.Answer, now)
	if err != nil {
		h.drop(s)
		return
	}
	if sent {
		h.metrics.events.Inc()
	}
	h.put(s, Interval(&result.Answer))
}

// pulses flushes all streams, and sends comments to silent ones.
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

// The intervals between two asks for a visitor.
const (
	// nearInterval is that of visitors near the front: a free slot is taken about so
	// soon.
	nearInterval = 500 * time.Millisecond
	// nearPosition and nearWait define near the front.
	nearPosition = 100
	nearWait     = 3 * time.Second
	// minInterval and maxInterval bound all others.
	minInterval = dueTime
	maxInterval = heartbeat
)

// Interval is how long after an answer to ask again for a visitor: the NextPoll of
// the answer, near the front at most 500 ms, and never more than 15 s.
func Interval(answer *engine.Answer) time.Duration {
	interval := min(max(answer.NextPoll, minInterval), maxInterval)
	if near(answer) {
		interval = min(interval, nearInterval)
	}
	return interval
}

func near(a *engine.Answer) bool {
	switch {
	case a.State == room.Called:
		return true
	case a.State != room.Waiting:
		return false
	case a.Position > 0 && a.Position <= nearPosition:
		return true
	}
	return a.Wait != nil && a.Wait.Low <= nearWait
}
