package gate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

const (
	// awayTime is how long after a failure of the store, unless it has answered since,
	// parts of pages pass where the room fails open: they bring no ticket to ask with.
	awayTime = 30 * time.Second
	// slowTime is how long a failed call must have taken to count as a hang of the store.
	slowTime = AskTime / 2
	// probeEvery is how often a hanging store is asked.
	probeEvery = time.Second
	// answeredStep is the resolution of answered.
	answeredStep = 10 * time.Millisecond
)

// storeHealth records whether the store answers. Its times are in nanoseconds since 1970;
// 0: never.
type storeHealth struct {
	// failed is when it last did not answer; 0 if it has answered since.
	failed atomic.Int64
	// answered is when it last answered, to answeredStep.
	answered atomic.Int64
	// hangs reports whether calls time out; probed is when one was last tried.
	hangs  atomic.Bool
	probed atomic.Int64
}

// mayAsk reports whether to ask the store. A hanging store is asked every probeEvery;
// other requests go on without it, because each would wait for AskTime, for every image
// of a page.
func (h *storeHealth) mayAsk(now time.Time) bool {
	if !h.hangs.Load() {
		return true
	}
	last := h.probed.Load()
	return now.UnixNano()-last >= int64(probeEvery) && h.probed.CompareAndSwap(last, now.UnixNano())
}

// note records the outcome of a call that began at a time. A call that took too long
// while others were answered does not show that the store hangs.
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

// failedLately reports whether the store failed within awayTime and has not answered
// since.
func (h *storeHealth) failedLately() bool {
	return time.Now().UnixNano()-h.failed.Load() < int64(awayTime)
}

// unavailable reports whether the failure is the store's, so that on_store_failure
// decides.
func unavailable(err error) bool {
	var gone *room.GoneError
	var limit *engine.LimitError
	switch {
	case errors.As(err, &gone), errors.As(err, &limit),
		errors.Is(err, room.ErrNoRoom), errors.Is(err, room.ErrNotOpen), errors.Is(err, room.ErrEnded),
		errors.Is(err, room.ErrNotRenewable), errors.Is(err, room.ErrLineFull), errors.Is(err, engine.ErrBadTicket), errors.Is(err, engine.ErrBadPass), errors.Is(err, engine.ErrUninvited), errors.Is(err, engine.ErrBadCode):
		return false
	}
	return true
}

// ask calls the engine, in bounded time. A request that its client canceled shows nothing
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
