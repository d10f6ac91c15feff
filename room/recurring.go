package room

import (
	"cmp"
	"errors"
	"time"

	"github.com/sluice-project/sluice/internal/cron"
)

// The bounds of Lasts and Prequeue.
const (
	minEvent = time.Second
	maxEvent = 366 * 24 * time.Hour
)

// Occurrence is one of the events of a room that repeat. A zero PrequeueFrom means that
// visitors may come at any time.
type Occurrence struct {
	PrequeueFrom time.Time `json:"prequeue_from,omitzero" doc:"When visitors may come to wait for opens_at; left out: at any time."`
	OpensAt      time.Time `json:"opens_at"`
	EndsAt       time.Time `json:"ends_at"`
}

// At returns the room at a time of the store's clock. Where events repeat, its settings have
// the times of the event that is on, or of the next one: the first that has not ended. It is
// sold out if that event is.
func (r *Room) At(now time.Time) *Room {
	s := r.Settings
	if s.Repeats == "" {
		return r
	}
	var opens, sold time.Time // the zero time, if this program reads the expression otherwise: it has ended
	if times, err := cron.Parse(s.Repeats, s.TimeZone, r.CreatedAt); err == nil {
		opens = times.Next(now.Add(-s.Lasts))
		if !r.SoldOutAt.IsZero() {
			sold = times.Next(r.SoldOutAt.Add(-s.Lasts))
		}
	}
	s.OpensAt, s.EndsAt = opens, opens.Add(s.Lasts)
	if s.Prequeue > 0 {
		s.PrequeueFrom = opens.Add(-s.Prequeue)
	}
	at := *r
	at.Settings = s
	if !sold.Equal(opens) {
		at.SoldOutAt = time.Time{}
	}
	return &at
}

// occurrence returns the event whose times the settings of At have; nil if events do not
// repeat.
func (r *Room) occurrence() *Occurrence {
	s := &r.Settings
	if s.Repeats == "" {
		return nil
	}
	return &Occurrence{s.PrequeueFrom, s.OpensAt, s.EndsAt}
}

// roomAt is a room at the times since one, until its event ends.
type roomAt struct {
	of, room *Room
	since    time.Time
}

// at returns Room.At, from memory if it is the same.
func (k *cachedRoom) at(now time.Time) *Room {
	r := k.room.Load()
	if r.Settings.Repeats == "" {
		return r
	}
	known := k.known.Load()
	if known == nil || known.of != r || now.Before(known.since) || !now.Before(known.room.Settings.EndsAt) {
		known = &roomAt{r, r.At(now), now}
		k.known.Store(known)
	}
	return known.room
}

// checkEvents checks the settings of events that repeat.
func (s *Settings) checkEvents() error {
	if s.Repeats == "" {
		if field := cmp.Or(given("time_zone", s.TimeZone != ""), given("lasts_ms", s.Lasts != 0), given("prequeue_ms", s.Prequeue != 0)); field != "" {
			return &SettingsError{field, "needs repeats: it is about events that repeat"}
		}
		return nil
	}
	switch field := cmp.Or(given("opens_at", !s.OpensAt.IsZero()), given("prequeue_from", !s.PrequeueFrom.IsZero()), given("ends_at", !s.EndsAt.IsZero())); {
	case field != "":
		return &SettingsError{field, "is for one event, and repeats says when each of several opens: leave out one of the two"}
	case s.Method == Lottery:
		return &SettingsError{"method", "is lottery, which draws for one opening: leave out repeats, or make a room for each event"}
	case s.Lasts == 0:
		return &SettingsError{"lasts_ms", "is missing; give how long each event lasts"}
	}
	times, err := cron.Parse(s.Repeats, s.TimeZone, time.Time{})
	if wrong := new(cron.Error); errors.As(err, &wrong) {
		if wrong.Field == "cron" {
			wrong.Field = "repeats"
		}
		return &SettingsError{wrong.Field, "is wrong: " + wrong.Why}
	}
	if times.Next(time.UnixMilli(0)).IsZero() {
		return &SettingsError{"repeats", "names no time that comes: there is no such day"}
	}
	return nil
}

// given returns a name if it is.
func given(name string, is bool) string {
	if is {
		return name
	}
	return ""
}
