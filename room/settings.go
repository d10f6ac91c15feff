package room

import "time"

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

// Method is the order of those who came before the opening.
type Method string

// The methods.
const (
	// FIFO is first come, first served.
	FIFO Method = "fifo"
	// Lottery draws the order of those who came before OpensAt. Who comes later
	// stands behind them, first come first served.
	Lottery Method = "lottery"
)

// OnStoreFailure is what a gate does when the store does not answer.
type OnStoreFailure string

// What a gate may do when the store does not answer.
const (
	// FailClosed shows everybody a page that says so.
	FailClosed OnStoreFailure = "closed"
	// FailOpen lets everybody through.
	FailOpen OnStoreFailure = "open"
)

// Settings are what an operator says of a room. Their JSON form is that of the
// API: durations are whole milliseconds, under names that end in _ms, and times
// are RFC 3339.
type Settings struct {
	// Mode is required.
	Mode Mode

	// Capacity is how many may be inside at most, 1 to 10,000,000. Teller only.
	Capacity int64
	// PassTTL is how long a pass lasts, 100 ms to 7 days. Default 10 minutes.
	// Teller only.
	PassTTL time.Duration
	// Pass is whether using a pass prolongs it. Default Sliding. Teller only.
	Pass PassKind
	// Renewals is how often a visitor may renew a Fixed pass, each time for
	// another PassTTL from then on; 0 to 1,000, default 0.
	Renewals int

	// Batch is how many are let in at each tick, 1 to 10,000,000. Park only.
	Batch int64
	// Interval is the time between ticks, 100 ms to 1 day. Park only.
	Interval time.Duration
	// Stay is how long after its tick each pass ends, 100 ms to 7 days. Park only.
	Stay time.Duration

	// ClaimWindow is how long who is called has to show up, 100 ms to 10 minutes.
	// Default 10 s. In mode Park it is never longer than Stay.
	ClaimWindow time.Duration
	// AbandonAfter is how long a visitor may be silent before it is skipped when
	// called, 100 ms to 1 day. Default 2 minutes: browsers let pages in the
	// background run once a minute.
	AbandonAfter time.Duration
	// Grace is for how long after that the place is kept and counted, 0 to 1 day.
	// Default 3 minutes; a negative Grace is none, as 0 is in JSON.
	Grace time.Duration
	// MaxWaiting is how many may wait; beyond it newcomers are refused. 1 to
	// 10,000,000, default 1,000,000.
	MaxWaiting int64

	// Method is the order of those who came before OpensAt. Default FIFO. Lottery
	// needs OpensAt.
	Method Method
	// OpensAt is when visitors are let in from; zero: since the room was made.
	OpensAt time.Time
	// PrequeueFrom is when visitors may come to wait for OpensAt; zero: at any
	// time. It needs OpensAt, and is before it.
	PrequeueFrom time.Time
	// EndsAt is when nobody is let in any more, and nobody may come; zero: never.
	// Passes last as long as they do.
	EndsAt time.Time

	// OnStoreFailure is what a gate does when the store does not answer. Default
	// FailClosed.
	OnStoreFailure OnStoreFailure
	// Routes are the requests that need a pass at a gate; empty: all. At most 100.
	Routes []Rule
	// Bypass are the requests that need none, whatever Routes say. At most 100.
	Bypass []Rule

	// JoinsPerMinute is how many visitors may enter from one client address (of IPv6,
	// one /64) in a minute, at each instance, at most 1,000,000; 0, the default: any
	// number.
	JoinsPerMinute int64
	// BindTickets binds each ticket to the client address that it was given to.
	// Default off: phones change their address.
	BindTickets bool
}

// Rule matches requests. A part that is empty matches all.
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
)
