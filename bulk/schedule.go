package bulk

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Overlap is what a schedule does when the previous run has not finished.
type Overlap string

// The values of Overlap.
const (
	// OverlapSkip skips the run. It is the default.
	OverlapSkip Overlap = "skip"
	// OverlapAllow starts the run.
	OverlapAllow Overlap = "allow"
)

// The bounds of schedules.
const (
	// MaxSchedules bounds the schedules of one store.
	MaxSchedules = 1000
	// MaxSchedulesBytes bounds the bytes of the jobs of all schedules. Concurrent calls
	// may exceed it.
	MaxSchedulesBytes = 64 << 20
	// MaxScheduleJobs and MaxScheduleBytes bound the jobs of one schedule.
	MaxScheduleJobs  = 10_000
	MaxScheduleBytes = 1 << 20
)

const (
	defaultCatchUp = time.Hour
	maxCatchUp     = 7 * 24 * time.Hour
)

// Schedule creates actions repeatedly. The fields of the request come first, then the
// engine's state. Stores keep a schedule as one JSON value.
type Schedule struct {
	// Name identifies the schedule: letters, digits and . _ - , at most 64.
	Name string `json:"name"`
	// Cron is when to run: five fields (minute, hour, day of the month, month, day of
	// the week), or @hourly, @daily, @weekly, @monthly, @yearly, or "@every 90m".
	Cron string `json:"cron"`
	// TimeZone is the IANA name of the fields' time zone. Default "UTC".
	TimeZone string `json:"time_zone"`
	// Spec is that of each action. Its ID, RunAt and ReplayOf must be empty: the id
	// consists of the name and the time of the run.
	Spec Spec `json:"spec"`
	// Jobs are the payloads of each action: 1 to MaxScheduleJobs, together at most
	// MaxScheduleBytes.
	Jobs [][]byte `json:"jobs"`
	// Overlap is OverlapSkip by default.
	Overlap Overlap `json:"overlap"`
	// CatchUp is how late a missed run may start, when no server ran or the store took
	// no writes; of several missed runs, only the latest starts. Default 1 h, at most 7
	// days; negative: missed runs do not start.
	CatchUp time.Duration `json:"catch_up"`

	// Revision is set by the store: see Store.PutSchedule. 0 means not stored.
	Revision int64 `json:"revision"`
	// Paused reports whether runs start only by RunNow.
	Paused bool `json:"paused,omitempty"`
	// Removing reports whether the removal of the schedule has begun.
	Removing  bool      `json:"removing,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// UpdatedAt is when a requested field last changed.
	UpdatedAt time.Time `json:"updated_at"`
	// Since is when Cron or TimeZone last changed: "@every" counts from it.
	Since time.Time `json:"since"`
	// NextRunAt is when the next run is due; zero if there will be none.
	NextRunAt time.Time `json:"next_run_at,omitzero"`
	// LastRunAt is when the last run was due, or requested by RunNow. LastAction is the
	// id of its action.
	LastRunAt  time.Time `json:"last_run_at,omitzero"`
	LastAction string    `json:"last_action,omitempty"`
	// LastSkippedAt is when the last skipped run was due.
	LastSkippedAt time.Time `json:"last_skipped_at,omitzero"`
	// LastError is why the last run failed to start; empty if it started.
	LastError string `json:"last_error,omitempty"`
	// Pending is the time of a run that has begun to start. Any instance completes it.
	// Zero if there is none.
	Pending time.Time `json:"pending,omitzero"`
}

// ScheduleError is the error of a Schedule with a wrong field. Why describes a right
// value. A wrong field of the Spec is a *SpecError.
type ScheduleError struct{ Field, Why string }

func (e *ScheduleError) Error() string { return e.Field + ": " + e.Why }

// UnfinishedError is the error of RunNow when the previous run has not finished and the
// schedule does not let runs overlap.
type UnfinishedError struct{ Schedule, Action string }

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("action %q of schedule %q has not finished: wait for it or cancel it, or let runs overlap", e.Action, e.Schedule)
}

// RunError is the error of a run that cannot start. It is permanent.
type RunError struct{ Schedule, Why string }

func (e *RunError) Error() string { return fmt.Sprintf("schedule %q: %s", e.Schedule, e.Why) }

var scheduleName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// Normalize checks the requested fields, all but the expression of Cron and TimeZone, which the
// engine compiles, and returns only those, with defaults.
func (s Schedule) Normalize() (Schedule, error) {
	n := Schedule{
		Name: s.Name, Cron: strings.Join(strings.Fields(s.Cron), " "), TimeZone: s.TimeZone,
		Spec: s.Spec, Jobs: s.Jobs, Overlap: s.Overlap, CatchUp: s.CatchUp,
	}
	n.TimeZone = cmp.Or(n.TimeZone, "UTC")
	n.Overlap = cmp.Or(n.Overlap, OverlapSkip)
	n.CatchUp = cmp.Or(n.CatchUp, defaultCatchUp)
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
	case n.Size() > MaxScheduleBytes:
		return s, &ScheduleError{"jobs", fmt.Sprintf("%d bytes: want at most 1 MiB together", n.Size())}
	case s.Spec.ID != "":
		return s, &SpecError{"id", "leave it out: it is made of the schedule's name and the time of the run"}
	case !s.Spec.RunAt.IsZero():
		return s, &SpecError{"run_at", "leave it out: cron says when"}
	case s.Spec.ReplayOf != "":
		return s, &SpecError{"replay_of", "leave it out"}
	}
	var err error
	n.Spec, err = n.Spec.Normalize()
	return n, err
}

// Size returns the number of bytes of the jobs.
func (s *Schedule) Size() (n int) {
	for _, job := range s.Jobs {
		n += len(job)
	}
	return n
}

// The layouts of times in the ids of actions: of runs that were due, and of runs that
// RunNow requested.
const (
	dueLayout   = "20060102T150405Z"
	askedLayout = "20060102T150405.000Z"
)

// RunID returns the id of the action of one run: the schedule's name, a colon, and the
// time in UTC, such as "nightly:20261121T000000Z". Names have no colon, and a run by
// RunNow has milliseconds, never 0.
func RunID(name string, at time.Time) string {
	layout := dueLayout
	if at.Nanosecond() != 0 {
		layout = askedLayout
	}
	return name + ":" + at.UTC().Format(layout)
}
