package term

import (
	"cmp"
	"slices"
	"time"
)

// Standing counts the jobs of one name at one moment: of a tenant, of an action, or of
// everything that is folded into one line.
type Standing struct {
	Name                                   string
	Total, Succeeded, Failed, Canceled     int64
	InFlight, NonReady, Throttled, Retried int64
	Note                                   string
}

// Done counts the jobs that are finished.
func (s *Standing) Done() int64 { return s.Succeeded + s.Failed + s.Canceled }

// Percent formats the part of the jobs that is finished.
func (s *Standing) Percent() string { return Percent(s.Done(), s.Total) }

// Add adds the counts of another standing.
func (s *Standing) Add(other *Standing) {
	s.Total += other.Total
	s.Succeeded += other.Succeeded
	s.Failed += other.Failed
	s.Canceled += other.Canceled
	s.InFlight += other.InFlight
	s.NonReady += other.NonReady
	s.Throttled += other.Throttled
	s.Retried += other.Retried
}

// Sum adds up standings.
func Sum(name string, standings []Standing) Standing {
	total := Standing{Name: name}
	for i := range standings {
		total.Add(&standings[i])
	}
	return total
}

// ByJobs orders standings by their jobs, most first, then by name. It returns a
// new slice.
func ByJobs(standings []Standing) []Standing {
	sorted := slices.Clone(standings)
	slices.SortStableFunc(sorted, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// KeepUnfolded returns how many of count lines are shown by themselves if about limit
// are wanted (0: all). A single remaining line is not folded.
func KeepUnfolded(count, limit int) int {
	if limit <= 0 || count <= limit+1 {
		return count
	}
	return limit
}

// Moment is what a display shows: all counts at one time.
type Moment struct {
	// Elapsed is the time since the jobs began to run.
	Elapsed time.Duration
	// Lines has one standing for each name, most jobs first.
	Lines []Standing
	// All is the sum of the lines.
	All Standing
	// Rate is the number of jobs finished per second, over the last seconds.
	Rate float64
}

// Left estimates the time until all jobs are finished; 0 if it is unknown.
func (m *Moment) Left() time.Duration {
	if m.Rate <= 0 {
		return 0
	}
	return time.Duration(float64(m.All.Total-m.All.Done()) / m.Rate * float64(time.Second))
}
