package bulk

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// readyTime is how much work is ready where no limit holds it.
const readyTime = 400 * time.Millisecond

// fetchPause is the minimum time between two reads of the fair queue. One that takes long, over
// very many lines, is followed by a pause of four times as long, up to fetchPauseMax, less
// fetchWorth for each job that it admitted.
const (
	fetchPause    = time.Millisecond
	fetchPauseMax = 2 * time.Second
	fetchWorth    = 100 * time.Microsecond
)

// fetcher moves jobs from the fair queue to the ready queue: it reads the backlog, asks
// the policies which jobs may pass, and hands the grants to the store.
func (e *Engine) fetcher(ctx context.Context) error {
	flows, look := map[string]*flow{}, newLook(e.config.FetchBatch)
	var backoff backoff
	for {
		began := time.Now()
		admitted, wait, err := e.fetchOnce(ctx, flows, look)
		if err != nil && !retriable(err) {
			return err
		}
		pause := max(fetchPause, min(4*time.Since(began)-time.Duration(admitted)*fetchWorth, fetchPauseMax), backoff.after(e.log, "fetch", err))
		if !lifecycle.Sleep(ctx, nil, pause) || !lifecycle.Sleep(ctx, e.fetch, wait) {
			return ctx.Err()
		}
	}
}

// fetchOnce admits the jobs that may pass now. It returns how many, and how long to wait unless
// woken.
func (e *Engine) fetchOnce(ctx context.Context, flows map[string]*flow, look *look) (admitted int, wait time.Duration, err error) {
	b, err := e.store.Backlog(ctx, look.most)
	if err != nil {
		return 0, e.config.FetchInterval, err
	}
	e.fairness.saw(b)
	e.bound(&b)
	free := e.free(b, flows)
	grants, reach := divide(b, free, max(0, e.config.Alpha))
	if len(grants) > 0 {
		if admitted, err = e.store.Admit(ctx, grants); err != nil {
			return 0, e.config.FetchInterval, err
		}
	}
	if admitted > 0 || e.readyHere(b) {
		e.wakeWorkers()
	}
	e.metrics.fetched(b, free, grants, admitted)
	if look.next(time.Now(), b.More, min(b.Left, free.most()), len(grants), reach) {
		return admitted, 0, nil
	}
	wait = e.config.FetchInterval
	if b.lines() > 0 {
		wait = min(wait, max(0, b.WindowEnds.Sub(b.Now)))
	}
	return admitted, wait, nil
}

// most returns how many jobs may become ready at most.
func (f Free) most() (jobs int64) {
	for _, n := range f.Types {
		jobs += n
	}
	return max(0, min(jobs, f.Total))
}

// lines returns how many lines have waiting jobs.
func (b *Backlog) lines() (lines int64) {
	for _, state := range b.Types {
		lines += int64(state.Lines)
	}
	return lines
}

const (
	// leastLook is the least number of actions that the fetcher asks for; briefLook where it
	// has seen that more wait, and that few of them can be served.
	leastLook = 256
	briefLook = 32
	// While more jobs could become ready it asks for lookFurther times as many actions if most
	// lines that it saw were granted jobs, and else for lookAhead for each of these lines; but
	// for few more than twice the jobs that could.
	lookAhead = 8
	// stuckAfter is after how long without grants for a type it looks further, lookFurther
	// times as far each time: all that it has seen may be held back by what the store does not
	// know. It continues to look as far for lookFar.
	stuckAfter  = 100 * time.Millisecond
	lookFurther = 4
	lookFar     = time.Second
	mostLook    = 1 << 30
)

// look is how many actions the fetcher asks for.
type look struct {
	least, most int
	// stuck has the types that were granted nothing though actions were left out, by since when.
	stuck map[string]time.Time
	// farUntil is until when it looks as far as it did.
	farUntil time.Time
}

func newLook(least int) *look {
	least = max(least, leastLook)
	return &look{least: least, most: least, stuck: map[string]time.Time{}}
}

// next sets how many actions to ask for next, and reports whether to ask at once. Capacity is
// how many jobs could become ready, and granted the number of actions that were granted some.
func (l *look) next(now time.Time, more bool, capacity int64, granted int, r reach) (again bool) {
	want := max(l.least, 2*granted)
	if len(r.short) > 0 {
		want = lookAhead * r.served
		if 2*r.served >= r.seen {
			want = lookFurther * l.most
		}
		want = max(briefLook, min(want, int(2*capacity)+l.least))
		again = want > l.most
	}
	for name := range l.stuck {
		if !r.short[name] || r.granted[name] {
			delete(l.stuck, name)
		}
	}
	for name := range r.short {
		switch since, stuck := l.stuck[name]; {
		case r.granted[name]:
		case !stuck:
			l.stuck[name] = now
		case now.Sub(since) >= stuckAfter && more:
			want, again = max(want, lookFurther*l.most), true
			l.farUntil = now.Add(lookFar)
		}
	}
	if now.Before(l.farUntil) {
		want = max(want, l.most)
	}
	l.most = min(want, mostLook)
	return again
}

// free returns how many jobs may become ready: for each type up to the bound of its flow, and
// in total up to the configured maximum. A type gets none until a batch's worth is free, and
// none while no worker leases its jobs.
func (e *Engine) free(b Backlog, flows map[string]*flow) Free {
	free := Free{Total: int64(e.config.ReadyMax), Types: map[string]int64{}}
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
		case b.Left == NoLimit:
			bound = max(minReady, int64(float64(bound)*readyTime.Seconds()))
			workers /= 2
		case e.config.Window < time.Second && b.lines() > 0:
			// Ready jobs hold a part of the limit: about as many as start in a window.
			bound = max(1, int64(float64(bound)*e.config.Window.Seconds()))
			workers = min(workers, b.Left/b.lines())
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
func (f *flow) next(now time.Time, state TypeState, most int64) int64 {
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
