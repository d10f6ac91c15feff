package bulk

import "time"

// minReady is the least bound of a type's ready queue.
const minReady = 8

// flow finds the bound of one type's ready queue: about one second of work at
// the workers' measured speed. A queue that long never starves the workers
// between two looks of the fetcher, and a newcomer waits about a second behind
// it at most. While the queue runs empty although more waits, the bound was too
// low to show the true speed, so it doubles.
type flow struct {
	bound    int64
	finished int64
	since    time.Time
}

// next returns the bound, given how the type does now.
func (f *flow) next(now time.Time, state TypeState, most int64) int64 {
	if f.since.IsZero() || state.Finished < f.finished {
		f.bound, f.since, f.finished = minReady, now, state.Finished
	}
	if state.Ready == 0 && state.Waiting > 0 && state.InFlight > 0 && state.Finished-f.finished >= f.bound {
		f.bound *= 2
	}
	if elapsed := now.Sub(f.since); elapsed >= time.Second {
		speed := float64(state.Finished-f.finished) / elapsed.Seconds()
		if state.Waiting > 0 || int64(speed) > f.bound {
			f.bound = int64(speed)
		}
		f.since, f.finished = now, state.Finished
	}
	f.bound = min(max(f.bound, minReady), most)
	return f.bound
}
