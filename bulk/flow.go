package bulk

import "time"

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
