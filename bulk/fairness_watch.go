package bulk

import (
	"sync"
	"time"
)

// fairnessWatch finds, for each full window, what each tenant completed and
// whether it was backlogged throughout: whether it had jobs waiting at every
// look of the fetcher, from the last before the window to the first after it.
type fairnessWatch struct {
	recorder *fairnessRecorder
	window   time.Duration

	mu         *sync.Mutex
	index      int64
	whole      bool // the window was seen from its beginning
	backlogged map[string]float64
	completed  map[string]int64
}

func newFairnessWatch(window time.Duration) fairnessWatch {
	return fairnessWatch{recorder: &fairnessRecorder{}, window: window, mu: new(sync.Mutex), completed: map[string]int64{}}
}

func (f *fairnessWatch) result() Fairness { return f.recorder.fairness() }

// saw takes note of who waits.
func (f *fairnessWatch) saw(b Backlog) {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := make(map[string]float64, len(b.Lines))
	for i := range b.Lines {
		waiting[b.Lines[i].Tenant] = b.Lines[i].Settings.Weight
	}
	for tenant := range f.backlogged {
		if _, still := waiting[tenant]; !still {
			delete(f.backlogged, tenant)
		}
	}
	f.roll(WindowIndex(b.Now, f.window), waiting)
}

// settled counts what was completed.
func (f *fairnessWatch) settled(batch []ended, verdicts []Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.roll(WindowIndex(time.Now(), f.window), nil)
	for i := range batch {
		if verdicts[i] == Accepted && batch[i].final() {
			f.completed[batch[i].spec.Tenant]++
		}
	}
}

// roll closes the window when another has begun. Waiting is nil if it is not
// known; then the next look completes the picture.
func (f *fairnessWatch) roll(index int64, waiting map[string]float64) {
	if index == f.index && f.backlogged != nil {
		return
	}
	if index == f.index+1 && f.whole {
		tenants := make([]windowTenant, 0, len(f.backlogged))
		for tenant, weight := range f.backlogged {
			tenants = append(tenants, windowTenant{completed: f.completed[tenant], weight: weight, backlogged: true})
		}
		f.recorder.observe(tenants)
	}
	f.whole = index == f.index+1
	f.index = index
	clear(f.completed)
	if waiting != nil {
		f.backlogged = waiting
	}
}
