package engine

import (
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// JainIndex returns Jain's index of fairness, (Σx)² / (n·Σx²): 1 if all n counts
// are equal, 1/n if one has everything. Counts must not be negative. Without counts, or
// with zeros only, the index is 1.
//
// R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and
// Discrimination for Resource Allocation in Shared Computer Systems", DEC
// Research Report TR-301, 1984.
func JainIndex(counts []float64) float64 {
	var most float64
	for _, x := range counts {
		most = max(most, x)
	}
	if most == 0 {
		return 1
	}
	// The index does not depend on the unit. This one keeps the squares in range.
	var sum, squares float64
	for _, x := range counts {
		x /= most
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// Fairness is how evenly completions were shared in the windows so far. Only full
// windows count, with at least two tenants that were backlogged throughout and at least
// one completion of theirs.
type Fairness struct {
	// Jain is the mean of the windows' JainIndex, 0 if there is no window. A
	// tenant's completions are divided by its weight.
	Jain float64
	// Windows is the number of windows in the mean.
	Windows int
}

// windowTenant is one tenant in one full window.
type windowTenant struct {
	// completed counts the attempts that ended in the window.
	completed int64
	// weight is the tenant's; 0 is the default, 1.
	weight float64
	// backlogged reports whether the tenant had jobs waiting throughout the window.
	backlogged bool
}

// fairnessRecorder keeps the running mean of Jain's index over windows, in
// constant memory. The zero value is ready, and safe for concurrent use.
type fairnessRecorder struct {
	mu   sync.Mutex
	seen Fairness
}

// observe adds one full window. Partial windows, such as the first and the last of a
// run, must not be added.
func (r *fairnessRecorder) observe(tenants []windowTenant) {
	var counts []float64
	var completed int64
	for _, t := range tenants {
		if !t.backlogged {
			continue
		}
		weight := bulk.Tenant{Weight: t.weight}.WithDefaults().Weight
		counts = append(counts, float64(t.completed)/weight)
		completed += t.completed
	}
	if len(counts) < 2 || completed == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Windows++
	r.seen.Jain += (JainIndex(counts) - r.seen.Jain) / float64(r.seen.Windows)
}

// fairness returns the fairness of the windows so far.
func (r *fairnessRecorder) fairness() Fairness {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// fairnessWatch records, for each full window, the completions of each tenant that was
// backlogged throughout: that had jobs waiting from the last read of the fair queue before the
// window to the first after it. Of more than mostCompared such tenants it compares some.
type fairnessWatch struct {
	recorder *fairnessRecorder
	window   time.Duration

	mu    *sync.Mutex
	index int64 // of the window that the fetcher has seen last
	whole bool  // it was seen from its beginning
	// completed counts what was completed in the window, and next in the one after it.
	completed, next map[string]int64
}

// mostCompared bounds the tenants of a window.
const mostCompared = 1000

func newFairnessWatch(window time.Duration) fairnessWatch {
	return fairnessWatch{
		recorder: &fairnessRecorder{}, window: window, mu: new(sync.Mutex), completed: map[string]int64{}, next: map[string]int64{},
	}
}

func (f *fairnessWatch) result() Fairness { return f.recorder.fairness() }

// saw closes the window when another has begun.
func (f *fairnessWatch) saw(b *bulk.Backlog) {
	f.mu.Lock()
	defer f.mu.Unlock()
	index := bulk.WindowIndex(b.Now, f.window)
	if index == f.index {
		return
	}
	follows := index == f.index+1
	if follows && f.whole {
		var tenants []windowTenant
		for tenant, weight := range b.WaitingSince(bulk.WindowStart(f.index, f.window), mostCompared) {
			tenants = append(tenants, windowTenant{completed: f.completed[tenant], weight: weight, backlogged: true})
		}
		f.recorder.observe(tenants)
	}
	f.completed, f.next = f.next, f.completed
	if clear(f.next); !follows {
		clear(f.completed)
	}
	f.index, f.whole = index, follows
}

// settled counts completions.
func (f *fairnessWatch) settled(batch []attemptOutcome, verdicts []bulk.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := f.completed
	switch bulk.WindowIndex(time.Now(), f.window) - f.index {
	case 0:
	case 1:
		counts = f.next
	default:
		return
	}
	for i := range batch {
		if verdicts[i] == bulk.Accepted && batch[i].final() {
			counts[batch[i].spec.Tenant]++
		}
	}
}
