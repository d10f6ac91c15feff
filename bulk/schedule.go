package bulk

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Overlap says whether a run of a schedule starts while the one before has not
// finished.
type Overlap string

// What a schedule may do when the run before has not finished.
const (
	// OverlapSkip leaves the run out. It is the default.
	OverlapSkip Overlap = "skip"
	// OverlapAllow starts it all the same.
	OverlapAllow Overlap = "allow"
)

// The bounds of schedules.
const (
	// MaxSchedules is the most schedules of one store.
	MaxSchedules = 1000
	// MaxSchedulesBytes is the most bytes of their jobs, all together. Of two that
	// are set at one time, both may be let in.
	MaxSchedulesBytes = 64 << 20
	// MaxScheduleJobs and MaxScheduleBytes bound the jobs of one schedule.
	MaxScheduleJobs  = 10_000
	MaxScheduleBytes = 1 << 20
)

const (
	defaultCatchUp = time.Hour
	maxCatchUp     = 7 * 24 * time.Hour
)

// Schedule makes an action again and again. What is asked for comes first; what
// the engine keeps of it follows. Stores keep a schedule as one JSON value.
type Schedule struct {
	// Name identifies the schedule: letters, digits and . _ - , at most 64.
	Name string `json:"name"`
	// Cron says when: five fields (minute, hour, day of the month, month, day of
	// the week), or @hourly, @daily, @weekly, @monthly, @yearly, or "@every 90m".
	Cron string `json:"cron"`
	// TimeZone is the IANA name of the time zone that the fields are in; default
	// "UTC".
	TimeZone string `json:"time_zone"`
	// Spec is that of each action. Its ID, RunAt and ReplayOf stay empty: an id is
	// made of the name and the time of the run.
	Spec Spec `json:"spec"`
	// Jobs are the payloads of each action: 1 to MaxScheduleJobs, together at most
	// MaxScheduleBytes.
	Jobs [][]byte `json:"jobs"`
	// Overlap is OverlapSkip by default.
	Overlap Overlap `json:"overlap"`
	// CatchUp is how late a run may start that was missed while nothing ran, or
	// while the store took no writes; of several, the latest is made. Default 1 h,
	// at most 7 days; negative: none.
	CatchUp time.Duration `json:"catch_up"`

	// Revision is the store's: see Store.PutSchedule. 0 is that of a schedule that
	// is not stored.
	Revision int64 `json:"revision"`
	// Paused: no run starts but those that are asked for by RunNow.
	Paused bool `json:"paused,omitempty"`
	// Removing: somebody has begun to remove the schedule.
	Removing  bool      `json:"removing,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// UpdatedAt is when what is asked for last changed.
	UpdatedAt time.Time `json:"updated_at"`
	// Since is when Cron or TimeZone last changed: "@every" counts from it.
	Since time.Time `json:"since"`
	// NextRunAt is when the next run is due; zero if there will be none.
	NextRunAt time.Time `json:"next_run_at,omitzero"`
	// LastRunAt is when the last run that was made was due, or asked for, and
	// LastAction is the id of its action.
	LastRunAt  time.Time `json:"last_run_at,omitzero"`
	LastAction string    `json:"last_action,omitempty"`
	// LastSkippedAt is when the last run was due that was left out because the one
	// before had not finished.
	LastSkippedAt time.Time `json:"last_skipped_at,omitzero"`
	// LastError says why the last run could not be made; empty if it was.
	LastError string `json:"last_error,omitempty"`
	// Pending is when the run was due that has begun to be made: it is made to its
	// end, by whoever finds it. Zero if there is none.
	Pending time.Time `json:"pending,omitzero"`
}

// ScheduleError says which field of a Schedule is wrong, and what would be right.
// What is wrong with its Spec is a *SpecError.
type ScheduleError struct{ Field, Why string }

func (e *ScheduleError) Error() string { return e.Field + ": " + e.Why }

// UnfinishedError: a run was asked for while the one before has not finished, and
// the schedule does not let them overlap.
type UnfinishedError struct{ Schedule, Action string }

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("action %q of schedule %q has not finished: wait for it or cancel it, or let runs overlap", e.Action, e.Schedule)
}

// RunError: a run could not be made. Trying again does not help.
type RunError struct{ Schedule, Why string }

func (e *RunError) Error() string { return fmt.Sprintf("schedule %q: %s", e.Schedule, e.Why) }

var scheduleName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// Normalize checks what is asked for, and returns that alone, with defaults
// filled in.
func (s Schedule) Normalize() (Schedule, error) {
	n := Schedule{
		Name: s.Name, Cron: strings.Join(strings.Fields(s.Cron), " "), TimeZone: s.TimeZone,
		Spec: s.Spec, Jobs: s.Jobs, Overlap: s.Overlap, CatchUp: s.CatchUp,
	}
	orDefault(&n.TimeZone, "UTC")
	orDefault(&n.Overlap, OverlapSkip)
	orDefault(&n.CatchUp, defaultCatchUp)
	n.CatchUp = max(n.CatchUp, -1)
	switch {
	case !scheduleName.MatchString(n.Name):
		return s, &ScheduleError{"name", "want 1 to 64 of letters, digits and . _ - , not beginning with a dot"}
	case n.Overlap != OverlapSkip && n.Overlap != OverlapAllow:
		return s, &ScheduleError{"overlap", `want "skip" or "allow"`}
	case n.CatchUp > maxCatchUp:
		return s, &ScheduleError{"catch_up_ms", "want at most 7 days"}
	case len(n.Jobs) == 0 || len(n.Jobs) > MaxScheduleJobs:
		return s, &ScheduleError{"jobs", "want 1 to 10,000"}
	case n.size() > MaxScheduleBytes:
		return s, &ScheduleError{"jobs", fmt.Sprintf("%d bytes: want at most 1 MiB together", n.size())}
	case s.Spec.ID != "":
		return s, &SpecError{"id", "leave it out: it is made of the schedule's name and the time of the run"}
	case !s.Spec.RunAt.IsZero():
		return s, &SpecError{"run_at", "leave it out: cron says when"}
	case s.Spec.ReplayOf != "":
		return s, &SpecError{"replay_of", "leave it out"}
	}
	now := time.Now()
	timing, err := parseTiming(n.Cron, n.TimeZone, now)
	if err != nil {
		return s, err
	}
	if timing.next(now).IsZero() {
		return s, &ScheduleError{"cron", "it names no time that comes: there is no such day"}
	}
	n.Spec, err = n.Spec.Normalize()
	return n, err
}

// size is the number of bytes of the jobs.
func (s *Schedule) size() (n int) {
	for _, job := range s.Jobs {
		n += len(job)
	}
	return n
}

// asks tells whether two schedules ask for the same. Both are normal.
func (s *Schedule) asks(other *Schedule) bool {
	return s.Name == other.Name && s.Cron == other.Cron && s.TimeZone == other.TimeZone && s.Overlap == other.Overlap &&
		s.CatchUp == other.CatchUp && s.Spec.Equal(other.Spec) && slices.EqualFunc(s.Jobs, other.Jobs, bytes.Equal)
}

// timing reads when the schedule's runs are due.
func (s *Schedule) timing() (timing, error) { return parseTiming(s.Cron, s.TimeZone, s.Since) }

// The times in the ids of actions: of runs that cron made due, and of those that
// RunNow asked for.
const (
	dueLayout   = "20060102T150405Z"
	askedLayout = "20060102T150405.000Z"
)

// RunID is the id of the action of one run: the schedule's name, a colon, and the
// time in UTC, such as "nightly:20261121T000000Z". Names have no colon, and a run
// that was asked for has milliseconds, never 0.
func RunID(name string, at time.Time) string {
	layout := dueLayout
	if at.Nanosecond() != 0 {
		layout = askedLayout
	}
	return name + ":" + at.UTC().Format(layout)
}
