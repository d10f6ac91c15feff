package room

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// Mode is how visitors are let in.
type Mode string

// The modes.
const (
	// Teller lets in the next visitor when one leaves: at most Capacity are inside.
	Teller Mode = "teller"
	// Park lets in Batch visitors every Interval, each for Stay.
	Park Mode = "park"
)

// PassKind is how long a pass of a room in mode Teller lasts.
type PassKind string

// The kinds of passes.
const (
	// Sliding passes end PassTTL after they were last used.
	Sliding PassKind = "sliding"
	// Fixed passes end PassTTL after they were claimed, or renewed.
	Fixed PassKind = "fixed"
)

// Method is the order of the visitors who came before the opening.
type Method string

// The methods.
const (
	// FIFO is first come, first served.
	FIFO Method = "fifo"
	// Lottery draws the order of the visitors who came before OpensAt. Later visitors
	// stand behind them, first come first served.
	Lottery Method = "lottery"
)

// OnStoreFailure is what a gate does when the store does not answer.
type OnStoreFailure string

// The values of OnStoreFailure.
const (
	// FailClosed shows everybody a page that says so.
	FailClosed OnStoreFailure = "closed"
	// FailOpen lets everybody through.
	FailOpen OnStoreFailure = "open"
)

// Settings are the operator's settings of a room. Their JSON form is that of the API:
// durations are whole milliseconds, under names that end in _ms, and times are RFC 3339.
type Settings struct {
	// Mode is required.
	Mode Mode

	// Capacity is the most visitors that may be inside, 1 to 10,000,000, or Auto. Teller
	// only.
	Capacity int64
	// PassTTL is how long a pass lasts, 100 ms to 7 days. Default 10 minutes.
	// Teller only.
	PassTTL time.Duration
	// Pass is whether using a pass extends it. Default Sliding. Teller only.
	Pass PassKind
	// Renewals is how often a visitor may renew a Fixed pass, each time for another
	// PassTTL from then; 0 to 1,000, default 0.
	Renewals int

	// Batch is how many visitors are let in at each tick, 1 to 10,000,000, or Auto. Park
	// only.
	Batch int64
	// Interval is the time between ticks, 100 ms to 1 day. Park only.
	Interval time.Duration
	// Stay is how long after its tick each pass ends, 100 ms to 7 days. Park only.
	Stay time.Duration

	// AutoMin and AutoMax bound a Capacity or Batch that is Auto, 1 to 10,000,000. Defaults
	// 10 and 100,000.
	AutoMin, AutoMax int64

	// ClaimWindow is how long a called visitor has to claim, 100 ms to 10 minutes.
	// Default 10 s. In mode Park it is never longer than Stay.
	ClaimWindow time.Duration
	// AbandonAfter is how long a visitor may be silent before it is skipped when
	// called, 100 ms to 1 day. Default 2 minutes: browsers let pages in the
	// background run once a minute.
	AbandonAfter time.Duration
	// Grace is how much longer the place is kept and counted, 0 to 1 day. Default 3
	// minutes; a negative Grace means none, as 0 does in JSON.
	Grace time.Duration
	// MaxWaiting is how many visitors may wait; further ones are refused. 1 to
	// 10,000,000, default 1,000,000.
	MaxWaiting int64

	// Method is the order of those who came before OpensAt. Default FIFO. Lottery
	// needs OpensAt.
	Method Method
	// OpensAt is when the room starts to let visitors in; zero: when it was created.
	OpensAt time.Time
	// PrequeueFrom is when visitors may come to wait for OpensAt; zero: at any
	// time. It needs OpensAt, and is before it.
	PrequeueFrom time.Time
	// EndsAt is when the room stops to let visitors in and refuses newcomers; zero:
	// never. Passes keep their ends.
	EndsAt time.Time

	// Repeats says when each of many events opens, as a cron expression: five fields (minute,
	// hour, day of the month, month, day of the week), @daily or its like, or "@every 90m"
	// since the room was created. Empty: there is one opening, at OpensAt. With Repeats, OpensAt,
	// PrequeueFrom and EndsAt are not set, and Method is FIFO; see [Room.At].
	Repeats string
	// TimeZone is the IANA name of the zone of Repeats, which needs it. Default UTC.
	TimeZone string
	// Lasts is how long after its opening each event of Repeats ends, 1 s to 366 days. Required
	// with Repeats.
	Lasts time.Duration
	// Prequeue is how long before each opening visitors may come to wait for it, 1 s to 366
	// days; 0: at any time.
	Prequeue time.Duration
	// Lanes are lines of their own with shares of the calls, as in
	// "vip=20,members=30,public=50": at most MaxLanes, see [Lane]. A visitor is in the lane that
	// its token names, or in the last. Empty: there is one line. Method is FIFO then.
	Lanes string
	// OnStoreFailure is what a gate does when the store does not answer. Default
	// FailClosed.
	OnStoreFailure OnStoreFailure
	// Routes are the requests that need a pass at a gate; empty: all. At most 100.
	Routes []Rule
	// Bypass are the requests that need no pass, despite Routes. At most 100.
	Bypass []Rule

	// JoinsPerMinute is how many visitors may enter from one client address (of IPv6, one
	// /64, and four times as many from one /48) in a minute, at each instance, at most
	// 1,000,000. 0, the default, is DefaultJoinsPerMinute for all addresses but those
	// that many visitors share; see [Visit]. A negative number means any number, as 0
	// does in JSON.
	JoinsPerMinute int64
	// BindTickets binds each ticket, and its passes, to the client address that it was
	// issued to. Default off: phones change their address.
	BindTickets bool
	// InvitationOnly refuses visitors without a key: with [TokenKeys], those without a
	// token or a code. So a person has one place, and in a lottery one draw. Default off.
	InvitationOnly bool
	// Codes accepts codes that [Engine.MakeCodes] has made, in place of a token: visitors who type one
	// are in its lane, and are invited. It needs Lanes or InvitationOnly. Default off.
	Codes bool
}

// Auto is a Capacity or Batch that is found from how the upstream answers: see
// [Engine.Observe]. In JSON it is "auto".
const Auto int64 = -1

// Rule matches requests. An empty part matches all.
type Rule struct {
	// Host is a host name without port, or *.example.com for all below it. At most
	// 253 bytes.
	Host string `json:"host,omitempty"`
	// Path is one path, or with /* at its end all below it and itself. At most 512
	// bytes.
	Path string `json:"path,omitempty"`
	// Method is an HTTP method in capital letters. At most 32 bytes.
	Method string `json:"method,omitempty"`
}

// The defaults of Settings.
const (
	DefaultPassTTL      = 10 * time.Minute
	DefaultClaimWindow  = 10 * time.Second
	DefaultAbandonAfter = 2 * time.Minute
	DefaultGrace        = 3 * time.Minute
	DefaultMaxWaiting   = 1_000_000
	DefaultAutoMin      = 10
	DefaultAutoMax      = 100_000
	// DefaultJoinsPerMinute is more than an office or the customers of a mobile network
	// behind one address need, and makes a million places a matter of 1,667 addresses
	// in a minute.
	DefaultJoinsPerMinute = 600
)

// SettingsError reports which setting is wrong, and why.
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

// WithDefaults returns the settings with defaults for zero values, times in UTC to the
// millisecond, an explicit zero Grace or JoinsPerMinute as -1, and a ClaimWindow no longer than Stay. Wrong
// values stay as they are.
func (s Settings) WithDefaults() Settings {
	s.ClaimWindow = cmp.Or(s.ClaimWindow, DefaultClaimWindow)
	s.AbandonAfter = cmp.Or(s.AbandonAfter, DefaultAbandonAfter)
	s.Grace = cmp.Or(s.Grace, DefaultGrace)
	s.MaxWaiting = cmp.Or(s.MaxWaiting, DefaultMaxWaiting)
	if s.Limit() == Auto {
		s.AutoMin = cmp.Or(s.AutoMin, DefaultAutoMin)
		s.AutoMax = cmp.Or(s.AutoMax, max(DefaultAutoMax, s.AutoMin))
	}
	s.Method = cmp.Or(s.Method, FIFO)
	if s.Repeats != "" {
		s.TimeZone = cmp.Or(s.TimeZone, "UTC")
	}
	s.OnStoreFailure = cmp.Or(s.OnStoreFailure, FailClosed)
	s.Grace, s.JoinsPerMinute = max(s.Grace, -1), max(s.JoinsPerMinute, -1)
	for _, t := range []*time.Time{&s.OpensAt, &s.PrequeueFrom, &s.EndsAt} {
		*t = t.UTC().Truncate(time.Millisecond)
	}
	switch s.Mode {
	case Teller:
		s.PassTTL = cmp.Or(s.PassTTL, DefaultPassTTL)
		s.Pass = cmp.Or(s.Pass, Sliding)
	case Park:
		if s.Stay >= minWindow {
			s.ClaimWindow = min(s.ClaimWindow, s.Stay)
		}
	}
	return s
}

// Limit returns the setting that bounds who is let in: the capacity or the batch.
func (s *Settings) Limit() int64 {
	if s.Mode == Park {
		return s.Batch
	}
	return s.Capacity
}

// Validate returns nil if a room can have these settings, and a *SettingsError otherwise.
// Zero values are defaults. It does not compile the expression of Repeats: the engine's
// ValidateSettings does.
func (s Settings) Validate() error {
	s = s.WithDefaults()
	for i := range settingFields {
		field := &settingFields[i]
		if why := field.wrong(&s); why != nil {
			return why
		}
	}
	return cmp.Or(s.checkEvents(), s.checkLanes(), s.checkTogether())
}

// wrong returns what is wrong with one field.
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

// checkTogether checks rules that involve several settings.
func (s *Settings) checkTogether() error {
	switch {
	case s.Limit() != Auto && s.AutoMin+s.AutoMax != 0:
		return &SettingsError{"auto_min", `and auto_max bound a capacity or batch that is "auto": leave them out`}
	case s.AutoMin > s.AutoMax:
		return &SettingsError{"auto_min", fmt.Sprintf("is above auto_max, which is %d", s.AutoMax)}
	case s.Codes && s.Lanes == "" && !s.InvitationOnly:
		return &SettingsError{"codes", "need lanes or invitation_only: without them nothing distinguishes who has one"}
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

// The bounds of settings, as documented on Settings.
const (
	MaxVisitors = 10_000_000
	maxRenewals = 1_000
	maxRules    = 100
	maxJoins    = 1_000_000
	minWindow   = 100 * time.Millisecond
	maxClaim    = 10 * time.Minute
	maxSilence  = 24 * time.Hour
	maxInterval = 24 * time.Hour
	maxVisit    = 7 * 24 * time.Hour
	// maxText is the most bytes of a text.
	maxText = 256
	// maxSettings is the most bytes of their JSON form.
	maxSettings = MaxRecord / 2
)

// grouped formats a number with commas between groups of three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
