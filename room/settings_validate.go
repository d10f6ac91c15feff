package room

import (
	"fmt"
	"strconv"
	"time"
)

// SettingsError says which setting is wrong, and why.
type SettingsError struct {
	// Field is the name in JSON, as in "capacity" or "routes[2].path"; "room" is the
	// room's name, and "settings" all of them.
	Field string
	// Why says what is wrong and what would be right.
	Why string
}

// Error returns the field and why it is wrong.
func (e *SettingsError) Error() string { return e.Field + " " + e.Why }

// ValidName returns nil if a room may have that name, and a *SettingsError of
// the field "room" otherwise.
func ValidName(name string) error {
	if len(name) == 0 || len(name) > maxName {
		return &SettingsError{"room", fmt.Sprintf("has a name of %d bytes; give 1 to %d", len(name), maxName)}
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return &SettingsError{"room", fmt.Sprintf(
				"cannot be named %q: give lower-case letters, digits and \"-\", beginning with a letter or digit", name)}
		}
	}
	return nil
}

// maxName is the most bytes of a room's name.
const maxName = 64

// WithDefaults returns the settings with defaults where nothing was set, times in
// UTC to the millisecond, a Grace of none as -1, and a ClaimWindow that is no longer
// than Stay. What is wrong stays as it is.
func (s Settings) WithDefaults() Settings {
	orDefault(&s.ClaimWindow, DefaultClaimWindow)
	orDefault(&s.AbandonAfter, DefaultAbandonAfter)
	orDefault(&s.Grace, DefaultGrace)
	orDefault(&s.MaxWaiting, DefaultMaxWaiting)
	orDefault(&s.Method, FIFO)
	orDefault(&s.OnStoreFailure, FailClosed)
	s.Grace = max(s.Grace, -1)
	for _, t := range []*time.Time{&s.OpensAt, &s.PrequeueFrom, &s.EndsAt} {
		*t = t.UTC().Truncate(time.Millisecond)
	}
	switch s.Mode {
	case Teller:
		orDefault(&s.PassTTL, DefaultPassTTL)
		orDefault(&s.Pass, Sliding)
	case Park:
		if s.Stay >= minWindow {
			s.ClaimWindow = min(s.ClaimWindow, s.Stay)
		}
	}
	return s
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Validate returns nil if a room can have these settings, and a *SettingsError
// otherwise. Zero values are defaults.
func (s Settings) Validate() error {
	s = s.WithDefaults()
	for i := range settingFields {
		field := &settingFields[i]
		if why := field.wrong(&s); why != nil {
			return why
		}
	}
	return s.checkTogether()
}

// wrong returns what is wrong about one field, as it is.
func (f *settingField) wrong(s *Settings) error {
	switch set := f.set(s); {
	case f.mode != "" && f.mode != s.Mode:
		if set {
			return f.otherMode(s.Mode)
		}
		return nil
	case !set && f.required:
		return &SettingsError{f.name, "is missing; " + f.give}
	case !set && f.optional:
		return nil
	}
	if why := f.check(s); why != nil {
		return why
	}
	return nil
}

func (f *settingField) otherMode(mode Mode) *SettingsError {
	return &SettingsError{f.name, fmt.Sprintf("is for mode %s, and this room has mode %s: leave it out", f.mode, mode)}
}

// checkTogether checks what depends on more than one setting.
func (s *Settings) checkTogether() error {
	switch {
	case s.Renewals > 0 && s.Pass != Fixed:
		return &SettingsError{"renewals", `needs "pass":"fixed": using a sliding pass prolongs it`}
	case s.Method == Lottery && s.OpensAt.IsZero():
		return &SettingsError{"method", `is lottery, which needs opens_at: it draws the order of those who came before`}
	case !s.PrequeueFrom.IsZero() && s.OpensAt.IsZero():
		return &SettingsError{"prequeue_from", "needs opens_at: it is since when visitors may wait for that"}
	case !s.PrequeueFrom.IsZero() && !s.PrequeueFrom.Before(s.OpensAt):
		return &SettingsError{"prequeue_from", "is not before opens_at, which is " + s.OpensAt.Format(time.RFC3339Nano)}
	case !s.EndsAt.IsZero() && !s.OpensAt.IsZero() && !s.EndsAt.After(s.OpensAt):
		return &SettingsError{"ends_at", "is not after opens_at, which is " + s.OpensAt.Format(time.RFC3339Nano)}
	case len(s.Routes)+len(s.Bypass) == 0:
		return nil
	}
	if text, err := s.MarshalJSON(); err != nil || len(text) > maxSettings {
		return &SettingsError{"routes", fmt.Sprintf("and bypass make settings of %s bytes; give shorter rules: at most %s",
			grouped(int64(len(text))), grouped(maxSettings))}
	}
	return nil
}

// The bounds of settings, as settings.go tells them.
const (
	maxVisitors = 10_000_000
	maxRenewals = 1_000
	maxRules    = 100
	maxJoins    = 1_000_000
	minWindow   = 100 * time.Millisecond
	maxClaim    = 10 * time.Minute
	maxSilence  = 24 * time.Hour
	maxInterval = 24 * time.Hour
	maxVisit    = 7 * 24 * time.Hour
	// maxSettings is the most bytes of their JSON form, which is most of a record.
	maxSettings = MaxRecord / 2
)

// grouped writes a number with a comma between each three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
