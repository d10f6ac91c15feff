package engine

import (
	"errors"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cron"
)

// parseTiming parses when the runs of a schedule are due.
func parseTiming(expression, zone string, since time.Time) (cron.Times, error) {
	times, err := cron.Parse(expression, zone, since)
	if wrong := new(cron.Error); errors.As(err, &wrong) {
		return times, &bulk.ScheduleError{Field: wrong.Field, Why: wrong.Why}
	}
	return times, err
}

// timingOf parses when a schedule's runs are due.
func timingOf(s *bulk.Schedule) (cron.Times, error) { return parseTiming(s.Cron, s.TimeZone, s.Since) }

// NormalizeSchedule checks the requested fields of a schedule, and returns only those, with defaults,
// as PutSchedule stores them. A wrong field is a *ScheduleError or a *SpecError.
func NormalizeSchedule(s bulk.Schedule) (bulk.Schedule, error) {
	n, err := s.Normalize()
	if err != nil {
		return s, err
	}
	now := time.Now()
	timing, err := parseTiming(n.Cron, n.TimeZone, now)
	if err != nil {
		return s, err
	}
	if timing.Next(now).IsZero() {
		return s, &bulk.ScheduleError{Field: "cron", Why: "it names no time that comes: there is no such day"}
	}
	return n, nil
}

// due has the runs of a schedule that became due.
type due struct {
	// run is the run to start; zero if there is none. Missed counts the other runs that
	// were due, which do not start.
	run    time.Time
	missed int
	// next is when the next run is due; zero if there is none.
	next time.Time
}

const (
	// runGrace is how late any run may start: loops, and instances that take over, need
	// that time.
	runGrace = 10 * time.Second
	// maxMissed bounds the missed runs that are counted at once.
	maxMissed = 10_000
)

// dueAt returns the run that is due at a time: the latest, if it is at most catchUp late.
func dueAt(t *cron.Times, first, now time.Time, catchUp time.Duration) (d due) {
	late := max(catchUp, runGrace)
	passed := 0
	last := time.Time{}
	for d.next = first; !d.next.IsZero() && !d.next.After(now); d.next = t.Next(d.next) {
		if passed++; passed == maxMissed && d.next.Before(now.Add(-late)) {
			d.next = now.Add(-late - 1) // Earlier runs cannot be caught up.
		} else {
			last = d.next
		}
	}
	if d.missed = passed; !last.IsZero() && now.Sub(last) <= late {
		d.run = last
		d.missed--
	}
	return d
}
