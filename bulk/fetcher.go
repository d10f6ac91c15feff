package bulk

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// fetchPause is the least time between two looks at the fair queue.
const fetchPause = time.Millisecond

// fetcher moves jobs from the fair queue to the ready queue: it looks at the
// backlog, asks the policies who may pass, and hands the grants to the store.
func (e *Engine) fetcher(ctx context.Context) error {
	flows := map[string]*flow{}
	var trouble trouble
	for {
		wait, err := e.fetchOnce(ctx, flows)
		if err != nil && !retriable(err) {
			return err
		}
		if !lifecycle.Sleep(ctx, nil, max(fetchPause, trouble.after(e.log, "fetch", err))) || !lifecycle.Sleep(ctx, e.fetch, wait) {
			return ctx.Err()
		}
	}
}

// fetchOnce admits what may pass now, and returns how long nothing changes by
// itself.
func (e *Engine) fetchOnce(ctx context.Context, flows map[string]*flow) (wait time.Duration, err error) {
	b, err := e.store.Backlog(ctx)
	if err != nil {
		return e.config.FetchInterval, err
	}
	e.fairness.saw(b)
	room := e.room(b, flows)
	grants := Divide(b, room, max(0, e.config.Alpha))
	admitted := 0
	if len(grants) > 0 {
		if admitted, err = e.store.Admit(ctx, grants); err != nil {
			return e.config.FetchInterval, err
		}
	}
	if admitted > 0 || e.readyHere(b) {
		e.wakeWorkers()
	}
	e.metrics.fetched(b, room, grants, admitted)
	wait = e.config.FetchInterval
	if len(b.Lines) > 0 {
		wait = min(wait, max(0, b.WindowEnds.Sub(b.Now)))
	}
	return wait, nil
}

// room is how many jobs may become ready: for each type up to the bound that its
// flow finds, in all up to the configured maximum. A type whose queue is still
// mostly full is left alone until a batch's worth is free, and one that nobody
// asks for until somebody does.
func (e *Engine) room(b Backlog, flows map[string]*flow) Room {
	room := Room{Total: int64(e.config.ReadyMax), Types: map[string]int64{}}
	for name, state := range b.Types {
		f := flows[name]
		if f == nil {
			f = &flow{}
			flows[name] = f
		}
		bound := f.next(b.Now, state, int64(e.config.ReadyMax))
		workers := int64(0)
		if p := e.pools[name]; p != nil {
			workers = int64(p.size())
		}
		if b.Left != NoLimit && e.config.Window < time.Second && len(b.Lines) > 0 {
			// What is ready holds a part of the limit: about what starts in a window.
			bound = max(1, int64(float64(bound)*e.config.Window.Seconds()))
			workers = min(workers, b.Left/int64(len(b.Lines)))
		}
		bound = max(bound, workers)
		free := bound - state.Ready
		if state.Ready > 0 && free < min(int64(e.config.FetchBatch), bound/4) {
			free = 0
		}
		if state.Idle {
			free = 0
		}
		room.Types[name] = max(0, free)
		room.Total -= state.Ready
	}
	for name := range flows {
		if _, present := b.Types[name]; !present {
			delete(flows, name)
		}
	}
	return room
}

// readyHere tells whether jobs are ready that workers here could take: another
// instance may have admitted them.
func (e *Engine) readyHere(b Backlog) bool {
	for name := range e.pools {
		if b.Types[name].Ready > 0 {
			return true
		}
	}
	return false
}

func (e *Engine) wakeWorkers() {
	for _, p := range e.pools {
		p.wake.wake()
	}
	e.admitted.wake()
}
