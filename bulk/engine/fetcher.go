package engine

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

// readyTime is how much work is ready where no limit holds it.
const readyTime = 400 * time.Millisecond

// fetchPause is the minimum time between two reads of the fair queue, unless a read takes longer:
// then it is that, so that the store is left to others.
const fetchPause = time.Millisecond

// fetcher moves jobs from the fair queue to the ready queue: it reads the backlog, asks
// the policies which jobs may pass, and hands the grants to the store.
func (e *Engine) fetcher(ctx context.Context) error {
	flows := map[string]*flow{}
	var backoff backoff
	for {
		began := time.Now()
		wait, err := e.fetchOnce(ctx, flows)
		if err != nil && !retriable(err) {
			return err
		}
		if !lifecycle.Sleep(ctx, nil, max(fetchPause, time.Since(began), backoff.after(e.log, "fetch", err))) || !lifecycle.Sleep(ctx, e.fetch, wait) {
			return ctx.Err()
		}
	}
}

// fetchOnce admits the jobs that may pass now, and returns how long to wait unless
// woken.
func (e *Engine) fetchOnce(ctx context.Context, flows map[string]*flow) (wait time.Duration, err error) {
	var seen fetched
	if err := e.store.Fetch(ctx, func(b *bulk.Backlog) { seen = e.divide(b, flows) }); err != nil {
		return e.config.FetchInterval, err
	}
	admitted := 0
	if len(seen.grants) > 0 {
		if admitted, err = e.store.Admit(ctx, seen.grants); err != nil {
			return e.config.FetchInterval, err
		}
	}
	if admitted > 0 || e.readyHere(seen.backlog) {
		e.wakeWorkers()
	}
	e.metrics.fetched(seen, admitted)
	wait = e.config.FetchInterval
	switch {
	case admitted > 0 && seen.backlog.NonReady[bulk.KeyLimited] > 0:
		wait = 0 // those that were admitted may wait for their keys too: then nobody says that more are needed
	case seen.backlog.LinesWaiting() > 0:
		wait = min(wait, max(0, seen.backlog.WindowEnds.Sub(seen.backlog.Now)))
	}
	return wait, nil
}

// fetched is what one read of the fair queue has found.
type fetched struct {
	backlog bulk.Backlog // without what is good only until Fetch returns
	free    bulk.Free
	grants  []bulk.Grant
	passed  map[string]int64 // jobs granted, by tenant
	// denied has up to maxLabels of the tenants that the global limit held back, or their own.
	denied map[string][]string
}

// divide asks the policies which jobs of a backlog may pass.
func (e *Engine) divide(b *bulk.Backlog, flows map[string]*flow) (seen fetched) {
	e.fairness.saw(b)
	seen.free = e.free(*b, flows)
	e.measure(b, &seen.free)
	seen.grants, seen.passed = bulk.Divide(b, seen.free)
	if b.Left == 0 {
		seen.denied = map[string][]string{"global": b.Queue.SomeTenants(maxLabels)}
	} else {
		seen.denied = map[string][]string{"tenant": b.Queue.SomeUsedUp(maxLabels)}
	}
	seen.backlog = *b
	seen.backlog.Queue, seen.backlog.Bounds, seen.backlog.Held = nil, nil, nil
	return seen
}

// free returns how many jobs may become ready: for each type up to the bound of its flow, and
// in total up to the configured maximum. A type gets none until a batch's worth is free, and
// none while no worker leases its jobs.
func (e *Engine) free(b bulk.Backlog, flows map[string]*flow) bulk.Free {
	free := bulk.Free{Total: int64(e.config.ReadyMax), Types: map[string]int64{}}
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
		switch {
		case b.Left == bulk.NoLimit:
			bound = max(minReady, int64(float64(bound)*readyTime.Seconds()))
			workers /= 2
		case e.config.Window < time.Second && b.LinesWaiting() > 0:
			// Ready jobs hold a part of the limit: about as many as start in a window.
			bound = max(1, int64(float64(bound)*e.config.Window.Seconds()))
			workers = min(workers, b.Left/b.LinesWaiting())
		}
		bound = max(bound, workers)
		more := bound - state.Ready
		if state.Idle || state.Ready > 0 && more < min(int64(e.config.FetchBatch), bound/4) {
			more = 0
		}
		free.Types[name] = max(0, more)
		free.Total -= state.Ready
	}
	for name := range flows {
		if _, present := b.Types[name]; !present {
			delete(flows, name)
		}
	}
	return free
}

// readyHere reports whether jobs are ready that workers here can run: another instance
// may have admitted them.
func (e *Engine) readyHere(b bulk.Backlog) bool {
	for name := range e.pools {
		if b.Types[name].Ready > 0 {
			return true
		}
	}
	return false
}

func (e *Engine) wakeWorkers() {
	for _, p := range e.pools {
		p.wake.Wake()
	}
	e.admitted.Wake()
}

// minReady is the minimum bound of a type's ready queue.
const minReady = 8

// flow computes the bound of one type's ready queue: about one second of work at the
// workers' measured speed. A queue of that length does not starve the workers between
// two runs of the fetcher, and new jobs wait about a second behind it at most. The speed
// is measured while workers have jobs: time that they are idle under a limit does not
// count. If the queue runs empty while more jobs wait, the bound was too low to measure
// the speed, and doubles.
type flow struct {
	bound    int64
	finished int64
	busy     time.Duration
	since    time.Time
}

// leastBusy is the minimum time that a speed is measured over.
const leastBusy = 10 * time.Millisecond

// next returns the bound, given the present state of the type.
func (f *flow) next(now time.Time, state bulk.TypeState, most int64) int64 {
	if f.since.IsZero() || state.Finished < f.finished {
		f.bound, f.since, f.finished, f.busy = minReady, now, state.Finished, state.Busy
	}
	if state.Ready == 0 && state.Waiting > 0 && state.InFlight > 0 && state.Finished-f.finished >= f.bound {
		f.bound *= 2
	}
	if now.Sub(f.since) >= time.Second {
		speed := float64(state.Finished-f.finished) / max(state.Busy-f.busy, leastBusy).Seconds()
		if state.Waiting > 0 && state.Finished > f.finished || int64(speed) > f.bound {
			f.bound = int64(speed)
		}
		f.since, f.finished, f.busy = now, state.Finished, state.Busy
	}
	f.bound = min(max(f.bound, minReady), most)
	return f.bound
}
