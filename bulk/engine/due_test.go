package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

func TestDueAt(t *testing.T) {
	day := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		cron      string
		first     time.Duration // relative to day
		now       time.Duration
		catchUp   time.Duration
		run, next time.Duration
		missed    int
		nothing   bool
	}{
		"not yet":                     {cron: "@daily", first: 24 * time.Hour, now: 23 * time.Hour, nothing: true, next: 24 * time.Hour},
		"in time":                     {cron: "@daily", first: 24 * time.Hour, now: 24*time.Hour + time.Millisecond, run: 24 * time.Hour, next: 48 * time.Hour},
		"late, nothing caught up":     {cron: "@daily", now: runGrace, catchUp: -1, run: 0, next: 24 * time.Hour},
		"too late for it":             {cron: "@daily", now: runGrace + 1, catchUp: -1, nothing: true, missed: 1, next: 24 * time.Hour},
		"at the bound":                {cron: "@daily", now: time.Hour, catchUp: time.Hour, run: 0, next: 24 * time.Hour},
		"beyond the bound":            {cron: "@daily", now: time.Hour + 1, catchUp: time.Hour, nothing: true, missed: 1, next: 24 * time.Hour},
		"the latest of several":       {cron: "@hourly", now: 5*time.Hour + time.Minute, catchUp: 24 * time.Hour, run: 5 * time.Hour, missed: 5, next: 6 * time.Hour},
		"the latest is within":        {cron: "@hourly", now: 5*time.Hour + time.Minute, catchUp: time.Hour, run: 5 * time.Hour, missed: 5, next: 6 * time.Hour},
		"intervals":                   {cron: "@every 10s", first: 10 * time.Second, now: 65 * time.Second, catchUp: time.Hour, run: 60 * time.Second, missed: 5, next: 70 * time.Second},
		"a year of seconds, none now": {cron: "* * * * *", now: 365 * 24 * time.Hour, catchUp: -1, run: 365 * 24 * time.Hour, missed: maxMissed, next: 365*24*time.Hour + time.Minute},
	} {
		timing, err := parseTiming(test.cron, "UTC", day)
		if err != nil {
			t.Fatal(err)
		}
		got := dueAt(&timing, day.Add(test.first), day.Add(test.now), test.catchUp)
		want := due{run: day.Add(test.run), missed: test.missed, next: day.Add(test.next)}
		if test.nothing {
			want.run = time.Time{}
		}
		if test.cron == "* * * * *" && got.missed < maxMissed || test.cron != "* * * * *" && got.missed != want.missed {
			t.Errorf("%s: %d missed, want %d", name, got.missed, want.missed)
		}
		if !got.run.Equal(want.run) || !got.next.Equal(want.next) {
			t.Errorf("%s: run %v, next %v; want %v, %v", name, got.run, got.next, want.run, want.next)
		}
	}
}

// FuzzSchedule parses a cron expression and a time zone.
func FuzzSchedule(f *testing.F) {
	for _, seed := range [][2]string{{"*/5 4-6 1,15 JAN-MAR MON", "UTC"}, {"@every 90m", "Asia/Seoul"}, {"0 0 29 2 *", "Europe/Berlin"}, {"@daily", "Local"}, {"22-2/2 * ? * 7", ""}, {"0-59/0 * * * *", "UTC"}} {
		f.Add(seed[0], seed[1])
	}
	now := time.Date(2026, 3, 29, 0, 30, 0, 1, time.UTC)
	f.Fuzz(func(t *testing.T, expression, zone string) {
		s, err := NormalizeSchedule(bulk.Schedule{Name: "n", Cron: expression, TimeZone: zone, Spec: bulk.Spec{Tenant: "t", Type: "echo"}, Jobs: [][]byte{nil}})
		if err != nil {
			if wrong := new(bulk.ScheduleError); !errors.As(err, &wrong) || wrong.Field != "cron" && wrong.Field != "time_zone" || wrong.Why == "" {
				t.Fatalf("%q in %q: %v, want what is wrong with either", expression, zone, err)
			}
			return
		}
		again, err := NormalizeSchedule(s)
		if err != nil || !asksSame(&again, &s) {
			t.Fatalf("%q in %q is normal, but then %+v, %v", expression, zone, again, err)
		}
		s.Since = now.Truncate(time.Second)
		timing, err := timingOf(&s)
		if err != nil {
			t.Fatal(err)
		}
		first := timing.Next(now)
		if first.IsZero() {
			return
		}
		if second := timing.Next(first); !first.After(now) || !second.IsZero() && !second.After(first) {
			t.Fatalf("%q in %q: %v, then %v, then %v", expression, zone, now, first, second)
		}
		if between := timing.Next(first.Add(-1)); !between.Equal(first) {
			t.Fatalf("%q in %q: just before %v comes %v", expression, zone, first, between)
		}
	})
}
