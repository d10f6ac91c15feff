package engine

import (
	"errors"
	"time"

	"github.com/sluice-project/sluice/internal/cron"
	"github.com/sluice-project/sluice/room"
)

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
func (r *Room) occurrence() *room.Occurrence {
	s := &r.Settings
	if s.Repeats == "" {
		return nil
	}
	return &room.Occurrence{PrequeueFrom: s.PrequeueFrom, OpensAt: s.OpensAt, EndsAt: s.EndsAt}
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

// ValidateSettings returns a *SettingsError if a room cannot have these settings: it checks what
// Settings.Validate does, and compiles the expression of Repeats.
func ValidateSettings(s room.Settings) error {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil || s.Repeats == "" {
		return err
	}
	times, err := cron.Parse(s.Repeats, s.TimeZone, time.Time{})
	if wrong := new(cron.Error); errors.As(err, &wrong) {
		if wrong.Field == "cron" {
			wrong.Field = "repeats"
		}
		return &room.SettingsError{Field: wrong.Field, Why: "is wrong: " + wrong.Why}
	}
	if times.Next(time.UnixMilli(0)).IsZero() {
		return &room.SettingsError{Field: "repeats", Why: "names no time that comes: there is no such day"}
	}
	return nil
}
