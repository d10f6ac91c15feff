package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func every(expression, zone string, lasts, prequeue time.Duration) room.Settings {
	s := teller(1)
	s.Repeats, s.TimeZone, s.Lasts, s.Prequeue = expression, zone, lasts, prequeue
	return s.WithDefaults()
}

// At has the times of the first event that has not ended.
func TestAtIsTheFirstEventThatHasNotEnded(t *testing.T) {
	for _, test := range []struct {
		settings room.Settings
		at, want string
	}{
		{every("0 9 * * *", "", time.Hour, 0), "2026-01-01T00:00:00Z", "09:00Z"},
		{every("0 9 * * *", "", time.Hour, 0), "2026-01-01T09:59:59Z", "09:00Z"},
		{every("0 9 * * *", "", time.Hour, 0), "2026-01-01T10:00:00Z", "02T09:00Z"},
		{every("0 10 * * SAT", "Asia/Seoul", 2*time.Hour, 0), "2026-11-25T00:00:00Z", "28T01:00Z"},
		{every("@daily", "", 36*time.Hour, 0), "2026-01-03T00:00:00Z", "02T00:00Z"}, // events overlap: the earlier one first
		{every("@daily", "", 36*time.Hour, 0), "2026-01-03T12:00:00Z", "03T00:00Z"},
	} {
		r := &engine.Room{Settings: test.settings, CreatedAt: instant(t, "2026-01-01T00:00:00Z")}
		s := r.At(instant(t, test.at)).Settings
		if got := s.OpensAt.UTC().Format("2006-01-02T15:04Z"); !strings.HasSuffix(got, test.want) || !s.EndsAt.Equal(s.OpensAt.Add(s.Lasts)) {
			t.Errorf("%s at %s: from %v to %v, want from %s", test.settings.Repeats, test.at, s.OpensAt, s.EndsAt, test.want)
		}
	}
}

// A room opens and closes for each event. Visitors who wait when one ends are told so, and
// come again for the next.
func TestEventsRepeat(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) { // from midnight
		shop := every("0 9 * * *", "", time.Hour, 30*time.Minute)
		shop.AbandonAfter, shop.Grace = 2*time.Hour, -1
		r.put("shop", shop)
		for day := range 2 {
			if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrNotOpen) {
				t.Fatalf("day %d, before the pre-queue: %v", day, err)
			}
			pass(8*time.Hour + 45*time.Minute)
			first, second := r.enter("shop"), r.enter("shop")
			if first.Position != 1 || second.Position != 2 {
				t.Fatalf("day %d, in the pre-queue: %+v, %+v", day, first, second)
			}
			pass(16 * time.Minute)
			if a := r.ask("shop", first.Ticket); a.State != room.Inside {
				t.Errorf("day %d, after the opening: %+v", day, a)
			}
			if v := r.view("shop"); v.Phase != room.Queueing || v.Event == nil || v.Event.OpensAt.Hour() != 9 || !v.Room.Settings.OpensAt.IsZero() {
				t.Errorf("day %d, open: %+v", day, v)
			}
			if a := r.ask("shop", second.Ticket); a.Position != 1 {
				t.Errorf("day %d, after the opening: %+v", day, a)
			}
			pass(time.Hour)
			var gone *room.GoneError
			if _, err := r.Ask(ctx, "shop", second.Ticket, nowhere); !errors.As(err, &gone) || gone.Reason != room.Ended {
				t.Errorf("day %d, after the end: %v", day, err)
			}
			if v := r.view("shop"); v.Phase != room.Closed {
				t.Errorf("day %d, after the end: %+v", day, v)
			}
			pass(13*time.Hour + 59*time.Minute) // until midnight
		}
	})
}

// A room is sold out for the event in which that was said, and can be again in the next.
func TestSoldOutIsOfOneEvent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) { // from midnight
		r.put("shop", every("0 9 * * *", "", time.Hour, 30*time.Minute))
		pass(9*time.Hour + time.Minute)
		for day := range 2 {
			r.enter("shop")
			if v, err := r.SoldOut(ctx, "shop"); err != nil || v.Phase != room.AllSold {
				t.Fatalf("day %d: %s, %v", day, v.Phase, err)
			}
			pass(30 * time.Minute)
			if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrSoldOut) {
				t.Errorf("day %d, when it is sold out: %v", day, err)
			}
			pass(23*time.Hour + 30*time.Minute)
		}
	})
}

// The clock of Berlin has no 2:30 on the day when it is put forward, and two on the day when
// it is put back: a room that opens at 2:30 opens once on each.
func TestEventsRepeatOverChangesOfTheClock(t *testing.T) {
	for day, want := range map[string]string{
		"2000-03-26T00:00:00Z": "01:00 01:15", // 3:00, since 2:30 is skipped
		"2000-10-29T00:00:00Z": "00:30 00:45", // the first 2:30
		"2000-10-30T00:00:00Z": "01:30 01:45",
	} {
		inVirtualTime(t, func(t *testing.T, r *rig) {
			r.put("shop", every("30 2 * * *", "Europe/Berlin", 30*time.Minute, time.Minute))
			at := instant(t, day)
			r.store.Shift(time.Until(at))
			pass(time.Minute) // the engine learns the time
			var open []string
			for range 24 * 4 {
				if v := r.view("shop"); v.Phase != room.Closed {
					open = append(open, v.Status.Now.UTC().Truncate(15*time.Minute).Format("15:04"))
				}
				if a, err := r.Enter(ctx, "shop", room.Visit{}); (err == nil) != (r.view("shop").Phase != room.Closed) {
					t.Errorf("entering: %+v, %v", a, err)
				}
				pass(15 * time.Minute)
			}
			if got := strings.Join(slices.Compact(open), " "); got != want {
				t.Errorf("on %s the room was open at %s UTC, want %s", day, got, want)
			}
		})
	}
}

// A wrong expression is an error of repeats, and a wrong zone one of time_zone.
func TestExpressionsOfRepeats(t *testing.T) {
	for _, test := range []struct{ repeats, zone, field, why string }{
		{"0 10 * * SAT", "Asia/Seoul", "", ""},
		{"* * * *", "", "repeats", "want five fields"},
		{"0 0 30 2 *", "", "repeats", "there is no such day"},
		{"@daily", "Mars/Olympus", "time_zone", "want the IANA name of a time zone"},
	} {
		err := engine.ValidateSettings(room.Settings{Mode: room.Teller, Capacity: 1, Repeats: test.repeats, TimeZone: test.zone, Lasts: time.Second})
		var wrong *room.SettingsError
		if (err != nil) != (test.why != "") || err != nil && (!errors.As(err, &wrong) || wrong.Field != test.field || !strings.Contains(wrong.Why, test.why)) {
			t.Errorf("%q in %q: %v, want %q of %s", test.repeats, test.zone, err, test.why, test.field)
		}
	}
}
