package bulk

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// fetchPause is the least time between two looks at the fair queue.
	fetchPause = time.Millisecond
	// idlePart is the part of a window's limit, and of the ready queue, that types
	// without workers may hold together.
	idlePart = 10
	// askedFor is how long a type counts as worked on after a remote worker asked
	// for its jobs.
	askedFor = 10 * time.Second
)

// asked remembers when remote workers last asked for the jobs of a type.
type asked struct {
	mu sync.Mutex
	at map[string]time.Time
}

// note takes down that types were asked for; true if one had not been lately. It
// forgets those that were not asked for in a long time.
func (a *asked) note(types []string, now time.Time) (anew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = map[string]time.Time{}
	}
	for _, name := range types {
		anew = anew || now.Sub(a.at[name]) >= askedFor
		a.at[name] = now
	}
	if anew {
		maps.DeleteFunc(a.at, func(_ string, at time.Time) bool { return now.Sub(at) >= askedFor })
	}
	return anew
}

// served tells whether somebody works on a type here.
func (e *Engine) served(name string, now time.Time) bool {
	if e.pools[name] != nil {
		return true
	}
	e.asked.mu.Lock()
	defer e.asked.mu.Unlock()
	return now.Sub(e.asked.at[name]) < askedFor
}

// fetcher moves jobs from the fair queue to the ready queue: it looks at the
// backlog, asks the policies who may pass, and hands the grants to the store.
func (e *Engine) fetcher(ctx context.Context) error {
	flows := map[string]*flow{}
	for {
		wait, err := e.fetchOnce(ctx, flows)
		if err != nil && !retriable(err) {
			return err
		} else if err != nil {
			e.log.Error("fetch", "error", err)
		}
		if !sleep(ctx, nil, fetchPause) || !sleep(ctx, e.fetch, wait) {
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
	grants := Divide(b, room, e.config.Alpha)
	admitted := 0
	if len(grants) > 0 {
		if admitted, err = e.store.Admit(ctx, grants); err != nil {
			return e.config.FetchInterval, err
		}
	}
	if admitted > 0 {
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
// mostly full is left alone until a batch's worth is free.
func (e *Engine) room(b Backlog, flows map[string]*flow) Room {
	room := Room{Total: int64(e.config.ReadyMax), Types: map[string]int64{}}
	// What nobody works on is held to a tenth, so that it keeps the rest from
	// nobody: ready jobs count against the window's limit.
	idle := min(b.Left, room.Total) / idlePart
	for name, state := range b.Types {
		if !e.served(name, b.Now) {
			idle -= state.Ready
		}
	}
	for name, state := range b.Types {
		f := flows[name]
		if f == nil {
			f = &flow{}
			flows[name] = f
		}
		free := max(0, e.free(name, f.next(b.Now, state, int64(e.config.ReadyMax)), state))
		if !e.served(name, b.Now) {
			free = min(free, max(0, idle))
			idle -= free
		}
		room.Types[name] = free
		room.Total -= state.Ready
	}
	for name := range flows {
		if _, present := b.Types[name]; !present {
			delete(flows, name)
		}
	}
	return room
}

// free is how many jobs of a type may become ready, by its bound.
func (e *Engine) free(name string, bound int64, state TypeState) int64 {
	if p := e.pools[name]; p != nil {
		if bound <= minReady && p.hangs() {
			return int64(p.size()) - state.InFlight - state.Ready
		}
		bound = max(bound, int64(p.size()))
	}
	free := bound - state.Ready
	if state.Ready > 0 && free < min(int64(e.config.FetchBatch), bound/4) {
		return 0
	}
	return free
}

func (e *Engine) wakeWorkers() {
	for _, p := range e.pools {
		p.wake.wake()
	}
	e.admitted.wake()
}
