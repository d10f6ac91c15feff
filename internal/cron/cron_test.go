package cron

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestNextRuns checks runs over changes of the clock, and on rare days.
func TestNextRuns(t *testing.T) {
	for _, test := range []struct{ zone, cron, after, want string }{
		{"UTC", "5 4 * * *", "2026-01-31T12:00:00Z", "02-01T04:05 02-02T04:05"},
		{"UTC", "0 0 * * 7", "2026-01-01T00:00:00Z", "01-04T00:00 01-11T00:00"},
		{"UTC", "0 0 13 * FRI", "2026-01-01T00:00:00Z", "01-02T00:00 01-09T00:00 01-13T00:00"}, // a day may match either field, as in crontab
		{"UTC", "0 12 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T12:00 2032-02-29T12:00"},
		{"UTC", "@monthly", "2026-01-01T00:00:00Z", "02-01T00:00 03-01T00:00"},
		{"UTC", "@every 90m", "2026-01-01T00:00:00Z", "01-01T01:30 01-01T03:00"},
		{"Asia/Seoul", "0 2 * * *", "2026-01-01T00:00:00Z", "01-02T02:00 01-03T02:00"},
		// The clock is put forward from 2:00 to 3:00.
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", "03-08T03:00 03-09T02:30"},
		{"America/New_York", "0,30 2-3 * * *", "2026-03-08T06:00:00Z", "03-08T03:00 03-08T03:30 03-09T02:00"},
		{"America/New_York", "*/30 * * * *", "2026-03-08T06:10:00Z", "03-08T01:30 03-08T03:00 03-08T03:30"},
		// The clock is put back from 2:00 to 1:00.
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", "11-01T01:30 11-02T01:30"},
		{"America/New_York", "0 1-2 * * *", "2026-11-01T04:30:00Z", "11-01T01:00 11-01T02:00 11-02T01:00"},
		{"America/New_York", "*/30 * * * *", "2026-11-01T04:50:00Z", "11-01T01:00 11-01T01:30 11-01T01:00 11-01T01:30 11-01T02:00"},
		{"America/New_York", "@hourly", "2026-11-01T04:50:00Z", "11-01T01:00 11-01T01:00 11-01T02:00"},
		// The clock skips midnight, half an hour, a whole day.
		{"America/Sao_Paulo", "@daily", "2018-11-03T12:00:00Z", "11-04T01:00 11-05T00:00"},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-02T17:00:00Z", "10-04T02:30 10-05T02:15"},
		{"Pacific/Apia", "0 9 30 * *", "2011-12-01T00:00:00Z", "12-31T00:00 01-30T09:00"},
	} {
		after := at(t, test.after)
		timing, err := Parse(test.cron, test.zone, after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, want := range strings.Fields(test.want) {
			after = timing.Next(after)
			got = append(got, after.In(timing.zone).Format("2006-01-02T15:04")[16-len(want):])
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s in %s after %s: %s, want %s", test.cron, test.zone, test.after, text, test.want)
		}
	}
}

func TestEveryCountsFromItsBeginning(t *testing.T) {
	since := at(t, "2026-01-01T10:00:05Z")
	timing, err := Parse("@every 7s", "UTC", since)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]float64{-time.Hour: 7, 0: 7, 6900 * time.Millisecond: 7, 7 * time.Second: 14, 24 * time.Hour: 86401} {
		if got := timing.Next(since.Add(after)).Sub(since).Seconds(); got != want {
			t.Errorf("after %v: %v s, want %v s", after, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ cron, zone, field string }{
		{"", "UTC", "cron"}, {"* * * *", "UTC", "cron"}, {"* * * * * *", "UTC", "cron"}, {"60 * * * *", "UTC", "cron"},
		{"* * * * 8", "UTC", "cron"}, {"@reboot", "UTC", "cron"}, {"H * * * *", "UTC", "cron"}, {"TZ=UTC * * * * *", "UTC", "cron"},
		{"CRON_TZ=UTC 0 0 * * *", "UTC", "cron"}, {"@every", "UTC", "cron"}, {"@every 0s", "UTC", "cron"}, {"@every 1500ms", "UTC", "cron"},
		{"@every -1h", "UTC", "cron"}, {"@every 9000h", "UTC", "cron"}, {"0 0 L * *", "UTC", "cron"}, {"0 0 * * " + strings.Repeat("1,", 200) + "1", "UTC", "cron"},
		{"@daily", "Local", "time_zone"}, {"@daily", "Mars/Olympus", "time_zone"}, {"@daily", "../etc/passwd", "time_zone"},
	} {
		var wrong *Error
		if _, err := Parse(test.cron, test.zone, time.Now()); !errors.As(err, &wrong) || wrong.Field != test.field {
			t.Errorf("%q in %q: %v, want an *Error of %s", test.cron, test.zone, err, test.field)
		}
	}
}

// TestNextIsThatOfTheClock checks that the next run is the one found by examining each
// minute.
func TestNextIsThatOfTheClock(t *testing.T) {
	changes := []struct{ zone, day string }{
		{"America/New_York", "2026-03-07T00:00:00Z"}, {"America/New_York", "2026-10-31T00:00:00Z"}, {"Australia/Lord_Howe", "2026-04-03T00:00:00Z"},
		{"Australia/Lord_Howe", "2026-10-02T00:00:00Z"}, {"America/Sao_Paulo", "2018-11-02T00:00:00Z"}, {"Pacific/Apia", "2011-12-28T12:00:00Z"}, {"UTC", "2026-01-01T00:00:00Z"},
	}
	rapid.Check(t, func(t *rapid.T) {
		change := rapid.SampledFrom(changes).Draw(t, "change")
		minutes := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"0", "1", "15", "29", "30", "59"}), 1, 3, rapid.ID).Draw(t, "minutes")
		hours := rapid.OneOf(rapid.Just([]string{"*"}), rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"0", "1", "2", "3", "12", "23"}), 1, 4, rapid.ID)).Draw(t, "hours")
		start, err := time.Parse(time.RFC3339, change.day)
		if err != nil {
			t.Fatal(err)
		}
		start = start.Add(time.Duration(rapid.IntRange(0, 2*24*60).Draw(t, "minute")) * time.Minute)
		expression := strings.Join(minutes, ",") + " " + strings.Join(hours, ",") + " * * *"
		timing, err := Parse(expression, change.zone, start)
		if err != nil {
			t.Fatal(err)
		}
		want := byTheMinute(minutes, hours, timing.zone, start)
		if got := timing.Next(start); !got.Equal(want) {
			t.Fatalf("%s in %s after %v: %v, want %v", expression, change.zone, start.In(timing.zone), got.In(timing.zone), want.In(timing.zone))
		}
	})
}

// byTheMinute examines the clock of a zone, minute by minute.
func byTheMinute(minutes, hours []string, zone *time.Location, after time.Time) time.Time {
	steady := hours[0] == "*"
	matches := func(shown time.Time) bool {
		return slices.Contains(minutes, shown.Format("4")) && (steady || slices.Contains(hours, strings.TrimPrefix(shown.Format("15"), "0")) ||
			shown.Hour() == 0 && slices.Contains(hours, "0"))
	}
	highest := time.Time{} // the latest time of day that the clock has shown
	for now := after.Add(-36 * time.Hour); ; now = now.Add(time.Minute) {
		shown := clockAt(now, zone)
		due := matches(shown) && (steady || shown.After(highest))
		for skipped := highest.Add(time.Minute); !steady && !highest.IsZero() && skipped.Before(shown); skipped = skipped.Add(time.Minute) {
			due = due || matches(skipped)
		}
		if shown.After(highest) {
			highest = shown
		}
		if due && now.After(after) {
			return now
		}
	}
}
