package cron

import (
	"strings"
	"time"

	parser "github.com/netresearch/go-cron"
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

// Times are the times of a cron expression in a time zone.
type Times struct {
	// every is the interval of "@every", counted from since; else 0.
	every time.Duration
	since time.Time
	// civil finds times of day on a clock without summer time, and zone maps them to
	// times. The library computes in UTC only: in zones with summer time it skips days
	// and runs twice (docs/decisions/0018).
	civil parser.Schedule
	zone  *time.Location
	// steady reports whether the hour is "*" or "*/n". Such a schedule runs by elapsed hours,
	// others by the hours that the clock shows.
	steady bool
}

// fields reads five fields, or a descriptor. As in crontab, if both fields of the day
// are restricted, a day matches if either field does.
var fields = parser.MustNewParser(parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow | parser.Descriptor | parser.DowOrDom).
	WithMaxSearchYears(cronYears)

// Error reports what is wrong with an expression or a time zone.
type Error struct {
	// Field is "cron" or "time_zone".
	Field string
	// Why describes a right value.
	Why string
}

func (e *Error) Error() string { return e.Field + ": " + e.Why }

// Parse parses a cron expression and the IANA name of a time zone; "@every" counts from since. Its
// errors are of type *Error.
func Parse(expression, zone string, since time.Time) (t Times, err error) {
	// The host's zone would differ between instances.
	if t.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" || len(zone) > 64 {
		return t, &Error{"time_zone", "want the IANA name of a time zone, such as Europe/Berlin or UTC"}
	}
	if text, ok := strings.CutPrefix(expression, "@every "); ok {
		t.every, err = time.ParseDuration(text)
		if err != nil || t.every < minEvery || t.every > maxEvery || t.every%time.Second != 0 {
			return t, &Error{"cron", `want "@every" and whole seconds, from 1s to 8784h, such as "@every 90m"`}
		}
		t.since = since
		return t, nil
	}
	words := strings.Fields(expression)
	// Expressions with a zone before the fields, or with the library's own intervals, are
	// refused.
	plain := len(expression) <= maxCron && !strings.ContainsAny(expression, "=\n") && !strings.HasPrefix(expression, "@every")
	if plain {
		t.civil, err = fields.Parse("TZ=UTC " + strings.Join(words, " "))
	}
	if !plain || err != nil {
		return t, &Error{"cron", "want five fields (minute, hour, day of the month, month, day of the week), @hourly, " +
			`@daily, @weekly, @monthly, @yearly or "@every 90m"` + because(err)}
	}
	t.steady = words[0] == "@hourly" || len(words) == 5 && strings.HasPrefix(words[1], "*")
	return t, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// Next returns the first time that is due after another; zero if there is none.
func (t *Times) Next(after time.Time) time.Time {
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
