package gate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

const (
	// awayTime is for how long after a failure of the store, unless it has answered
	// since, parts of pages go through where it fails open: they bring no ticket to
	// ask with.
	awayTime = 30 * time.Second
	// slowTime is what a question that fails must have taken for the store to hang.
	slowTime = AskTime / 2
	// probeEvery is how often a store that hangs is asked.
	probeEvery = time.Second
	// answeredStep is how exactly it is known when the store has answered.
	answeredStep = 10 * time.Millisecond
)

// storeHealth remembers whether the store answers. Its times are in nanoseconds since
// 1970; 0: never.
type storeHealth struct {
	// failed is when it last did not answer; 0 if it has answered since.
	failed atomic.Int64
	// answered is when it last did, to answeredStep.
	answered atomic.Int64
	// hangs says that questions are not answered in time, and probed when one was asked
	// all the same.
	hangs  atomic.Bool
	probed atomic.Int64
}

// mayAsk tells whether to ask the store. One that hangs is asked every probeEvery, and
// all others go on without it: each would wait for AskTime, for every image of a page.
func (h *storeHealth) mayAsk(now time.Time) bool {
	if !h.hangs.Load() {
		return true
	}
	last := h.probed.Load()
	return now.UnixNano()-last >= int64(probeEvery) && h.probed.CompareAndSwap(last, now.UnixNano())
}

// note remembers what became of a question that was asked at a time. One that
// took too long while others were answered does not show that the store hangs.
func (h *storeHealth) note(began time.Time, err error) {
	now := time.Now()
	if err == nil || !unavailable(err) {
		if now.UnixNano()-h.answered.Load() >= int64(answeredStep) {
			h.answered.Store(now.UnixNano())
		}
		if h.failed.Load() != 0 {
			h.failed.Store(0)
			h.hangs.Store(false)
		}
		return
	}
	h.failed.Store(now.UnixNano())
	if now.Sub(began) >= slowTime && h.answered.Load() < began.UnixNano() {
		h.hangs.Store(true)
	}
}

// failedLately tells whether the store did not answer a moment ago.
func (h *storeHealth) failedLately() bool {
	return time.Now().UnixNano()-h.failed.Load() < int64(awayTime)
}

// unavailable tells whether the failure is the store's, so that on_store_failure
// decides.
func unavailable(err error) bool {
	var gone *room.GoneError
	var limit *room.LimitError
	switch {
	case errors.As(err, &gone), errors.As(err, &limit),
		errors.Is(err, room.ErrNoRoom), errors.Is(err, room.ErrNotOpen), errors.Is(err, room.ErrEnded),
		errors.Is(err, room.ErrLineFull), errors.Is(err, room.ErrBadTicket), errors.Is(err, room.ErrBadPass):
		return false
	}
	return true
}

// ask asks the engine, in bounded time. What a visitor has broken off tells nothing
// about the store.
func (v *visit) ask(question func(ctx context.Context) error) error {
	began := time.Now()
	if !v.gate.store.mayAsk(began) {
		return room.ErrUnavailable
	}
	ctx, cancel := v.asking()
	defer cancel()
	err := question(ctx)
	if v.r.Context().Err() == nil {
		v.gate.store.note(began, err)
	}
	return err
}
