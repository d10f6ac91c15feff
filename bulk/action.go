package bulk

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Class orders the actions within a tenant.
type Class uint8

// The classes. Normal is the default.
const (
	Normal Class = iota
	High
	Low
)

// String returns the class as the API spells it.
func (c Class) String() string { return [...]string{"normal", "high", "low"}[c] }

// ParseClass reads what String writes; empty is Normal.
func ParseClass(s string) (Class, error) {
	switch s {
	case "", "normal":
		return Normal, nil
	case "high":
		return High, nil
	case "low":
		return Low, nil
	}
	return 0, fmt.Errorf("class %q: want high, normal or low", s)
}

// MarshalText implements encoding.TextMarshaler.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Class) UnmarshalText(text []byte) (err error) {
	*c, err = ParseClass(string(text))
	return err
}

// Status is the status of an action.
type Status string

// The statuses, in the order of an action's life. The last three are final.
const (
	// Created: jobs are being uploaded.
	Created Status = "CREATED"
	// Dispatched: the action is sealed; no job has been admitted yet.
	Dispatched Status = "DISPATCHED"
	// Running: jobs are being admitted and run.
	Running Status = "RUNNING"
	// Aggregating: all jobs have finished; results are being reduced.
	Aggregating Status = "AGGREGATING"
	// Completed: the result is final.
	Completed Status = "COMPLETED"
	// Failed: more jobs failed than the action allows, or aggregation failed.
	Failed Status = "FAILED"
	// Canceled: no further job starts. Jobs in flight are told to end; those that finish
	// are counted, and FinishedAt is set when the last one has ended.
	Canceled Status = "CANCELED"
)

// Final reports whether the status is final.
func (s Status) Final() bool { return s == Completed || s == Failed || s == Canceled }

// Target is what jobs call.
type Target struct {
	// Name identifies the target for limits; it defaults to the URL's host:port.
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Redacted returns the target as answers, events and messages may show it: see RedactURL. It
// is nil if t is.
func (t *Target) Redacted() *Target {
	if t == nil {
		return nil
	}
	return &Target{Name: t.Name, URL: RedactURL(t.URL)}
}

// notShown stands for each secret in a URL.
const notShown = "xxxxx"

// RedactURL returns the text of a URL, or of a reference to one, with xxxxx in place of its user
// and password and of each value of its query, and without its fragment. Only stores have the
// whole URLs of targets.
func RedactURL(text string) string {
	text, _, _ = strings.Cut(text, "#")
	text, query, asked := strings.Cut(text, "?")
	if scheme, rest, absolute := strings.Cut(text, "//"); absolute {
		authority, path, below := strings.Cut(rest, "/")
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			text = scheme + "//" + notShown + authority[at:]
			if below {
				text += "/" + path
			}
		}
	}
	if !asked {
		return text
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, _, named := strings.Cut(part, "="); named {
			parts[i] = name + "=" + notShown
		} else if part != "" {
			parts[i] = notShown
		}
	}
	return text + "?" + strings.Join(parts, "&")
}

// WebhookType is the job type of actions that have a target.
const WebhookType = "webhook"

// Spec is the request to create an action.
type Spec struct {
	// ID identifies the action: creating is idempotent. If it is empty, an id is
	// generated. It consists of letters, digits and . _ : - , at most 128.
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	// Type names the handler of the jobs. It is WebhookType if Target is set.
	Type   string  `json:"type"`
	Target *Target `json:"target,omitempty"`
	Class  Class   `json:"class"`
	// Key says whom of the tenant's own customers the jobs are for: keys of one tenant that wait
	// have equal parts of what the tenant gets, however many actions and jobs each has. It has at
	// most 256 printable characters; empty is a key like any other.
	Key string `json:"key,omitempty"`
	// Cost is the value of the variable cost in the limits by key of the jobs, up to MaxCost.
	// Default 1.
	Cost int64 `json:"cost,omitempty"`
	// Aggregate names the aggregates of the results, such as "sum:amount".
	Aggregate []string `json:"aggregate,omitempty"`
	// RunAt is the earliest time of the first attempt; zero means now.
	RunAt time.Time `json:"run_at,omitzero"`
	// MaxAttempts is the maximum of attempts of one job; 0 is the default of its type.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Timeout bounds one attempt; 0 is the default of its type.
	Timeout time.Duration `json:"timeout,omitempty"`
	// FailAbove is the share of failed jobs, 0 to 1, above which the action ends as
	// FAILED. Nil is 1: it ends as COMPLETED even if all jobs fail.
	FailAbove *float64 `json:"fail_above,omitempty"`
	// ReplayOf is the action whose dead letters this one runs again.
	ReplayOf string `json:"replay_of,omitempty"`
	// ReplayPart says which of them; nil: all. Engine.Replay sets it, so that an interrupted replay can be completed.
	ReplayPart *ReplayPart `json:"replay_part,omitempty"`
	// Events names the events to publish in addition to those of the action's status:
	// JobEvents. ActionEvents has no effect. It needs a Publisher.
	Events []string `json:"events,omitempty"`
	// KeepResults keeps the result of each job that succeeds, up to MaxEventResult bytes, for
	// Store.Job, until the action is forgotten.
	KeepResults bool `json:"keep_results,omitempty"`
	// Stream makes the action a stream: it is RUNNING and open from its creation, and takes
	// jobs until it is sealed. Only Engine.Enqueue creates streams.
	Stream bool `json:"stream,omitempty"`
	// Trace is the trace that the action's spans belong to. The engine sets it when it
	// creates the action; it is not part of the request.
	Trace TraceContext `json:"trace,omitzero"`
}

// ReplayPart is a part of the dead letters of an action: those with an index below a bound that a filter selects.
type ReplayPart struct {
	FailureFilter
	Below int64 `json:"below"`
}

// Callee returns the name of what the jobs call: their target, or the handlers of their
// type, under a name that no target can have.
func (s *Spec) Callee() string {
	if s.Target != nil {
		return s.Target.Name
	}
	return HandlersOf(s.Type)
}

// HandlersOf returns the name of the handlers of a type, as Callee does.
func HandlersOf(jobType string) string { return "\x00" + jobType }

// Equal reports whether two specs request the same, whatever their traces.
func (s Spec) Equal(other Spec) bool {
	s.Trace, other.Trace = TraceContext{}, TraceContext{}
	if !s.RunAt.Equal(other.RunAt) {
		return false
	}
	s.RunAt, other.RunAt = time.Time{}, time.Time{}
	if len(s.Aggregate) == 0 && len(other.Aggregate) == 0 {
		s.Aggregate, other.Aggregate = nil, nil
	}
	if s.JobEvents() == other.JobEvents() {
		s.Events, other.Events = nil, nil
	}
	return reflect.DeepEqual(s, other)
}

// TargetName returns the name of the spec's target, or "".
func (s *Spec) TargetName() string {
	if s.Target == nil {
		return ""
	}
	return s.Target.Name
}

// isID reports whether a text is 1 to 128 of letters, digits and . _ : -
func isID(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._:-", r))
	})
}

// isName reports whether a text is 1 to 256 characters, none of which controls a terminal.
func isName(text string) bool {
	return text != "" && utf8.RuneCountInString(text) <= 256 && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// SpecError is the error of a Spec with a wrong field. Why describes the correct value.
type SpecError struct{ Field, Why string }

func (e *SpecError) Error() string { return e.Field + ": " + e.Why }

// Normalize checks the spec and returns it with derived fields set: the target's name,
// and the type.
func (s Spec) Normalize() (Spec, error) {
	if s.Target != nil {
		target, err := s.Target.Normalize()
		if err != nil {
			return s, err
		}
		if s.Type != "" && s.Type != WebhookType {
			return s, &SpecError{"type", "give either a type or a target, not both"}
		}
		s.Target, s.Type = &target, WebhookType
	}
	switch {
	case !isName(s.Tenant):
		return s, &SpecError{"tenant", "want 1 to 256 printable characters"}
	case s.Type == WebhookType && s.Target == nil:
		return s, &SpecError{"target", "jobs of type webhook need a target with a url"}
	case s.Type == "":
		return s, &SpecError{"type", `give a type, such as "echo", or a target with a url`}
	case !isID(s.Type):
		return s, &SpecError{"type", "want 1 to 128 of letters, digits and . _ : -"}
	case s.Cost < 0 || s.Cost > MaxCost:
		return s, &SpecError{"cost", fmt.Sprintf("want 1 to %d, or 0 for the default", MaxCost)}
	case s.Key != "" && !isName(s.Key):
		return s, &SpecError{"key", "want at most 256 printable characters"}
	case s.Class > Low:
		return s, &SpecError{"class", "want High, Normal or Low"}
	case !s.RunAt.IsZero() && (s.RunAt.UTC().Year() < 1 || s.RunAt.UTC().Year() > 9999):
		return s, &SpecError{"run_at", "want a time in the years 1 to 9999, in UTC"}
	case s.ID == "." || s.ID == "..":
		return s, &SpecError{"id", "want more than dots: they would not be taken for a name in the path of a URL"}
	case s.ID != "" && !isID(s.ID):
		return s, &SpecError{"id", "want at most 128 of letters, digits and . _ : -"}
	case s.MaxAttempts < 0 || s.MaxAttempts > 100:
		return s, &SpecError{"max_attempts", "want 1 to 100, or 0 for the default"}
	case s.Timeout < 0 || s.Timeout > 24*time.Hour:
		return s, &SpecError{"timeout_ms", "want 1 ms to 24 h, or 0 for the default"}
	case s.FailAbove != nil && !(*s.FailAbove >= 0 && *s.FailAbove <= 1):
		return s, &SpecError{"fail_above", "want a share from 0 to 1"}
	}
	s.RunAt = s.RunAt.UTC()
	var err error
	s.Events, err = normalizeEvents(s.Events)
	return s, err
}

// Normalize checks the target, and returns it with its name set. The error is a *SpecError.
func (t Target) Normalize() (Target, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		// The text may hold a password, so that it is not quoted.
		return t, &SpecError{"target.url", "want an http or https URL with a host"}
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return t, &SpecError{"target.url", "want a port from 1 to 65535"}
		}
	}
	if t.Name == "" {
		port := u.Port()
		port = cmp.Or(port, map[string]string{"http": "80", "https": "443"}[u.Scheme])
		t.Name = net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	}
	if !isName(t.Name) {
		return t, &SpecError{"target.name", "want 1 to 256 printable characters"}
	}
	return t, nil
}

// Action is one bulk action: its spec, its status, and the counts of its jobs.
type Action struct {
	Spec
	Status Status `json:"status"`
	Paused bool   `json:"paused"`
	// Open reports whether the action is a stream that is not sealed. Its jobs may all be
	// done and it has not finished: it takes more.
	Open bool `json:"open,omitempty"`
	// Total is the number of jobs, once the action is sealed.
	Total     int64     `json:"total"`
	CreatedAt time.Time `json:"created_at"`
	// EnteredAt is when the action was sealed and entered the fair queue; of a stream, when
	// it was created.
	EnteredAt  time.Time `json:"entered_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// Result has one entry for each of Spec.Aggregate.
	Result map[string]json.RawMessage `json:"result,omitempty"`
	// Error is why the action failed.
	Error string `json:"error,omitempty"`
	// Reduced counts the batches of outcomes in Partial, the aggregator's state.
	Reduced uint64 `json:"reduced,omitempty"`
	Partial []byte `json:"partial,omitempty"`
	// Replays counts the replays of the action's dead letters.
	Replays int `json:"replays,omitempty"`

	Counts
}

// Action returns the new action of a spec.
func (s Spec) Action(now time.Time) Action {
	a := Action{Spec: s, Status: Created, CreatedAt: now}
	if s.Stream {
		a.Status, a.Open, a.EnteredAt = Running, true, now
	}
	return a
}

// Size returns the number of jobs: the total, or what was received so far of an open stream.
func (a *Action) Size() int64 {
	if a.Open {
		return a.Received
	}
	return a.Total
}

// Replayable reports whether dead letters can be replayed: those of a stream, also while it runs.
func (a *Action) Replayable() bool {
	return !a.FinishedAt.IsZero() || a.Stream && !a.Status.Final()
}

// Takes reports whether jobs can be appended.
func (a *Action) Takes() bool { return a.Status == Created || a.Open }

// Counts has the number of an action's jobs in each state. Received is the sum of Pending,
// Ready, NonReady, InFlight, Succeeded, Failed and Canceled.
type Counts struct {
	Received int64 `json:"received"`
	// Pending jobs wait in the action's line.
	Pending int64 `json:"pending"`
	Ready   int64 `json:"ready"`
	// NonReady counts the jobs that were turned back, by reason.
	NonReady  [nonReadyReasons]int64 `json:"non_ready"`
	InFlight  int64                  `json:"in_flight"`
	Succeeded int64                  `json:"succeeded"`
	Failed    int64                  `json:"failed"`
	Canceled  int64                  `json:"canceled"`
	// Throttled counts the attempts that a target throttled.
	Throttled int64 `json:"throttled"`
	// Retried counts the attempts that failed and were retried.
	Retried int64 `json:"retried"`
	// Batches counts the batches of recorded outcomes.
	Batches uint64 `json:"batches"`
}

// Done counts the jobs that have finished.
func (c *Counts) Done() int64 { return c.Succeeded + c.Failed + c.Canceled }

// NonReadyTotal counts the jobs that were turned back, for any reason.
func (c *Counts) NonReadyTotal() (n int64) {
	for _, count := range c.NonReady {
		n += count
	}
	return n
}

// LastReplay returns the id of the newest replay of the action; "" if it was never replayed.
func (a *Action) LastReplay() string {
	if a.Replays == 0 {
		return ""
	}
	return ReplayID(a.ID, a.Replays)
}

// ReplayID returns the id of the nth replay of an action. If that does not fit, the action's
// id is cut and a digest of it follows: long ids that begin alike need replays of their own.
func ReplayID(id string, n int) string {
	const most, digest = 128, 16 // most is that of isID
	suffix := fmt.Sprintf(".replay-%d", n)
	if len(id)+len(suffix) <= most {
		return id + suffix
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s.%x%s", id[:most-len(suffix)-2*digest-1], sum[:digest], suffix)
}
