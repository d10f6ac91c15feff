package bulk

import "sync"

// JainIndex returns Jain's index of fairness, (Σx)² / (n·Σx²): 1 if all n counts
// are equal, 1/n if one has everything. Counts must not be negative. With no
// counts, or only zeros, nobody has more than another: the index is 1.
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
	// The index does not depend on the unit; this one keeps squares in range.
	var sum, squares float64
	for _, x := range counts {
		x /= most
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// Fairness says how evenly completions were shared in the windows so far. Only
// full windows count, and in each only the tenants that were backlogged
// throughout it, of which there must be two; a window in which none of them
// completed anything shows nothing, and does not count.
type Fairness struct {
	// Jain is the mean of the windows' JainIndex, 0 if there is no window. A
	// tenant's completions are divided by its weight.
	Jain float64
	// Windows is how many windows the mean is of.
	Windows int
}

// windowTenant is what one tenant did in one full window.
type windowTenant struct {
	// completed counts the attempts that ended in the window.
	completed int64
	// weight is the tenant's; 0 is the default, 1.
	weight float64
	// backlogged says that the tenant had jobs waiting at every moment of the
	// window.
	backlogged bool
}

// fairnessRecorder keeps the running mean of Jain's index over windows, in
// constant memory. The zero value is ready, and safe for concurrent use.
type fairnessRecorder struct {
	mu   sync.Mutex
	seen Fairness
}

// observe adds one full window. A window that was cut short, such as the first
// and the last of a run, must not be given.
func (r *fairnessRecorder) observe(tenants []windowTenant) {
	var counts []float64
	var completed int64
	for _, t := range tenants {
		if !t.backlogged {
			continue
		}
		weight := Tenant{Weight: t.weight}.WithDefaults().Weight
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

// fairness returns what the windows so far showed.
func (r *fairnessRecorder) fairness() Fairness {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}
