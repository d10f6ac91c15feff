package bulk

import (
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

const (
	// maxCron bounds the bytes of a cron expression.
	maxCron = 256
	// cronYears bounds the search for the next run: 29 February is a Sunday every 28
	// years, or after 40.
	cronYears = 41
	// minEvery and maxEvery bound the interval of "@every".
	minEvery = time.Second
	maxEvery = 366 * 24 * time.Hour
	// maxShift is more than any offset from UTC, and more than any change of one.
	maxShift = 48 * time.Hour
	// maxTransitions bounds the changes of an offset in one search.
	maxTransitions = 100
)

// timing computes when the runs of a schedule are due.
type timing struct {
	// every is the interval of "@every", counted from since; else 0.
	every time.Duration
	since time.Time
	// civil finds times of day on a clock without summer time, and zone maps them to
	// times. The library computes in UTC only: in zones with summer time it skips days
	// and runs twice (docs/decisions/0018).
	civil cron.Schedule
	zone  *time.Location
	// steady reports whether the hour is "*" or "*/n". Such a schedule runs by elapsed hours,
	// others by the hours that the clock shows.
	steady bool
}

// cronParser reads five fields, or a descriptor. As in crontab, if both fields of the day
// are restricted, a day matches if either field does.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(cronYears)

// parseTiming parses a cron expression and the name of a time zone.
func parseTiming(expression, zone string, since time.Time) (t timing, err error) {
	// The host's zone would differ between instances.
	if t.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" || len(zone) > 64 {
		return t, &ScheduleError{"time_zone", "want the IANA name of a time zone, such as Europe/Berlin or UTC"}
	}
	if text, ok := strings.CutPrefix(expression, "@every "); ok {
		t.every, err = time.ParseDuration(text)
		if err != nil || t.every < minEvery || t.every > maxEvery || t.every%time.Second != 0 {
			return t, &ScheduleError{"cron", `want "@every" and whole seconds, from 1s to 8784h, such as "@every 90m"`}
		}
		t.since = since
		return t, nil
	}
	fields := strings.Fields(expression)
	// Expressions with a zone before the fields, or with the library's own intervals, are
	// refused.
	plain := len(expression) <= maxCron && !strings.ContainsAny(expression, "=\n") && !strings.HasPrefix(expression, "@every")
	if plain {
		t.civil, err = cronParser.Parse("TZ=UTC " + strings.Join(fields, " "))
	}
	if !plain || err != nil {
		return t, &ScheduleError{"cron", "want five fields (minute, hour, day of the month, month, day of the week), @hourly, " +
			`@daily, @weekly, @monthly, @yearly or "@every 90m"` + because(err)}
	}
	t.steady = fields[0] == "@hourly" || len(fields) == 5 && strings.HasPrefix(fields[1], "*")
	return t, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// next returns the first run that is due after a time; zero if there is none.
func (t *timing) next(after time.Time) time.Time {
	if t.every > 0 {
		passed := after.Sub(t.since)
		if passed < 0 {
			return t.since.Add(t.every)
		}
		return t.since.Add(passed - passed%t.every + t.every)
	}
	at := after
	from := clockAt(at, t.zone) // a run is due after this time of day
	for range maxTransitions {
		start, end := at.In(t.zone).ZoneBounds()
		if !t.steady && !start.IsZero() {
			// Times that the clock showed before it was put back do not count twice.
			if shown := clockAt(start.Add(-1), t.zone); shown.After(from) {
				from = shown
			}
		}
		due := t.civil.Next(from)
		if due.IsZero() {
			return due
		}
		instant := due.Add(at.Sub(clockAt(at, t.zone)))
		if end.IsZero() || instant.Before(end) {
			return instant.UTC()
		}
		if !t.steady && due.Before(clockAt(end, t.zone)) {
			return end.UTC() // The clock was put forward over it.
		}
		// Skip to where the run may be due.
		at = end
		if near := due.Add(-maxShift); near.After(at) {
			at = near
		}
		from = clockAt(at, t.zone).Add(-1)
	}
	return time.Time{}
}

// clockAt returns what the clocks of a zone show at a time, as a time in UTC.
func clockAt(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
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
func (t *timing) dueAt(first, now time.Time, catchUp time.Duration) (d due) {
	late := max(catchUp, runGrace)
	passed := 0
	last := time.Time{}
	for d.next = first; !d.next.IsZero() && !d.next.After(now); d.next = t.next(d.next) {
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
