package bulk

import "time"

// minReady is the least bound of a type's ready queue.
const minReady = 8

// flow finds the bound of one type's ready queue: about one second of work at
// the workers' measured speed. A queue that long never starves the workers
// between two looks of the fetcher, and a newcomer waits about a second behind
// it at most. The speed is that of the time in which they had work: workers that
// a limit keeps idle are not slow. While the queue runs empty although more
// waits, the bound was too low to show the true speed, so it doubles.
type flow struct {
	bound    int64
	finished int64
	busy     time.Duration
	since    time.Time
}

// leastBusy is the shortest time that a speed is measured over.
const leastBusy = 10 * time.Millisecond

// next returns the bound, given how the type does now.
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
