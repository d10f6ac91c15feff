package room

import (
	"cmp"
	"time"
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
	return nil
}

// given returns a name if it is.
func given(name string, is bool) string {
	if is {
		return name
	}
	return ""
}
