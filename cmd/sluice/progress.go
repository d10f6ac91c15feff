package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// standing is how the jobs of one name do at one moment: those of a tenant, of
// an action, or of everything that was folded into one line.
type standing struct {
	Name                                   string
	Total, Succeeded, Failed, Canceled     int64
	InFlight, NonReady, Throttled, Retried int64
	Note                                   string
}

// standingOf reads an action. An action that is still being uploaded has no
// total yet: what was received stands for it.
func standingOf(name string, a *bulk.Action) standing {
	s := standing{
		Name: name, Total: max(a.Total, a.Received),
		Succeeded: a.Succeeded, Failed: a.Failed, Canceled: a.Canceled,
		InFlight: a.InFlight, NonReady: a.NonReadyTotal(),
		Throttled: a.Throttled, Retried: a.Retried,
	}
	switch {
	case a.Status == bulk.Failed, a.Status == bulk.Canceled, a.Status == bulk.Created:
		s.Note = string(a.Status)
	case a.Paused:
		s.Note = "PAUSED"
	}
	return s
}

// Done counts the jobs that are finished.
func (s *standing) Done() int64 { return s.Succeeded + s.Failed + s.Canceled }

// Add adds the counts of another standing.
func (s *standing) Add(other *standing) {
	s.Total += other.Total
	s.Succeeded += other.Succeeded
	s.Failed += other.Failed
	s.Canceled += other.Canceled
	s.InFlight += other.InFlight
	s.NonReady += other.NonReady
	s.Throttled += other.Throttled
	s.Retried += other.Retried
}

// sum adds up standings.
func sum(name string, standings []standing) standing {
	total := standing{Name: name}
	for i := range standings {
		total.Add(&standings[i])
	}
	return total
}

// byJobs orders standings by their jobs, most first, then by name. It returns a
// new slice.
func byJobs(standings []standing) []standing {
	sorted := slices.Clone(standings)
	slices.SortStableFunc(sorted, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// keepUnfolded says how many of count lines are shown by themselves when about
// limit are wanted (0: all). A rest of one is not folded: its own line is as
// short as the fold.
func keepUnfolded(count, limit int) int {
	if limit <= 0 || count <= limit+1 {
		return count
	}
	return limit
}

// moment is what a display shows: how all do at one time.
type moment struct {
	// Elapsed is the time since the jobs began to run.
	Elapsed time.Duration
	// Lines has one standing for each name, most jobs first.
	Lines []standing
	// All is the sum of the lines.
	All standing
	// Rate is the number of jobs finished per second, lately.
	Rate float64
}

// Left estimates the time until all are finished; 0 if it cannot tell.
func (m *moment) Left() time.Duration {
	if m.Rate <= 0 {
		return 0
	}
	return time.Duration(float64(m.All.Total-m.All.Done()) / m.Rate * float64(time.Second))
}

// rateSpan is the time that a rate is taken over.
const rateSpan = 3 * time.Second

// rateMeter measures how fast a count rises, over the last rateSpan. It holds
// the readings of that span only.
type rateMeter struct {
	at    []time.Duration
	count []int64
}

// Read adds a reading and returns the rate per second.
func (r *rateMeter) Read(at time.Duration, count int64) float64 {
	r.at, r.count = append(r.at, at), append(r.count, count)
	for len(r.at) > 2 && at-r.at[1] >= rateSpan {
		r.at, r.count = r.at[1:], r.count[1:]
	}
	took := (at - r.at[0]).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(count-r.count[0]) / took
}
