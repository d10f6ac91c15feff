package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// every is a schedule of two jobs.
func every(name, cron string) bulk.Schedule {
	return bulk.Schedule{
		Name: name, Cron: cron, Jobs: [][]byte{[]byte("1"), []byte("2")},
		Spec: bulk.Spec{Tenant: "tenant", Type: "send", Aggregate: []string{"count"}},
	}
}

func (r *rig) putSchedule(s bulk.Schedule) bulk.Schedule {
	r.t.Helper()
	stored, _, err := r.PutSchedule(context.Background(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	return stored
}

func (r *rig) scheduled(name string) bulk.Schedule {
	r.t.Helper()
	s, err := r.Schedule(context.Background(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// runs returns the ids of all actions, without the name of the schedule, and checks that each
// has exactly the two jobs.
func (r *rig) runs() string {
	r.t.Helper()
	actions, err := r.Store().Actions(context.Background(), bulk.ActionFilter{})
	if err != nil {
		r.t.Fatal(err)
	}
	ids := make([]string, len(actions))
	for i, a := range actions {
		_, ids[i], _ = strings.Cut(a.ID, ":")
		if a.Received != 2 {
			r.t.Errorf("%s has %d jobs, want 2", a.ID, a.Received)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func (r *rig) expectRuns(want string) {
	r.t.Helper()
	if got := r.runs(); got != want {
		r.t.Errorf("runs: %s\nwant: %s", got, want)
	}
}

func (r *rig) expectOutcomes(started, skipped, missed, failed int) {
	r.t.Helper()
	var want strings.Builder
	want.WriteString("# HELP bulk_schedule_runs_total Runs of schedules that were due or asked for, by what became of them.\n# TYPE bulk_schedule_runs_total counter\n")
	for i, outcome := range []string{"started", "skipped", "missed", "failed"} {
		if n := []int{started, skipped, missed, failed}[i]; n > 0 {
			fmt.Fprintf(&want, "bulk_schedule_runs_total{outcome=%q} %d\n", outcome, n)
		}
	}
	if err := testutil.CollectAndCompare(r.Collector(), strings.NewReader(want.String()), "bulk_schedule_runs_total"); err != nil {
		r.t.Error(err)
	}
}

// sends finishes each job at once or, if may is not nil, when it receives from may.
func sends(may <-chan struct{}) *bulk.Mux {
	return handled(func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		if may == nil {
			return nil, nil
		}
		select {
		case <-may:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
}

// TestScheduleRuns checks runs in a bubble, which begins at 2000-01-01T00:00:00Z.
func TestScheduleRuns(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		s := every("nightly", "1-3 9 * * *")
		s.TimeZone = "Asia/Seoul"
		s = r.putSchedule(s)
		if want := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC); !s.NextRunAt.Equal(want) {
			t.Errorf("the next run is at %v, want %v", s.NextRunAt, want)
		}
		pass(5 * time.Minute)
		r.expectRuns("20000101T000100Z 20000101T000200Z 20000101T000300Z")
		s = r.scheduled("nightly")
		if s.LastAction != "nightly:20000101T000300Z" || s.LastAction != bulk.RunID(s.Name, s.LastRunAt) || s.NextRunAt.Sub(s.LastRunAt) != 24*time.Hour-2*time.Minute {
			t.Errorf("last run %v, action %s, next run %v", s.LastRunAt, s.LastAction, s.NextRunAt)
		}
		a := r.action(s.LastAction)
		if a.Status != bulk.Completed || string(a.Result["count"]) != "2" || a.CreatedAt.Sub(s.LastRunAt) > time.Second {
			t.Errorf("the last action is %s, result %s, created at %v", a.Status, a.Result["count"], a.CreatedAt)
		}
		r.expectOutcomes(3, 0, 0, 0)
	})
}

// TestManySchedulesAtOneTime checks that all runs due at one time start then.
func TestManySchedulesAtOneTime(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		for n := range 100 {
			r.putSchedule(every(fmt.Sprint("s", n), "* * * * *"))
		}
		pass(time.Minute + 3*time.Second)
		actions, err := r.Store().Actions(t.Context(), bulk.ActionFilter{Status: bulk.Completed})
		if err != nil || len(actions) != 100 {
			t.Errorf("%d actions completed, error %v; want 100", len(actions), err)
		}
	})
}

func TestScheduleOverlap(t *testing.T) {
	for overlap, want := range map[bulk.Overlap]string{
		bulk.OverlapSkip:  "20000101T000100Z 20000101T000400Z",
		bulk.OverlapAllow: "20000101T000100Z 20000101T000200Z 20000101T000300Z 20000101T000400Z",
	} {
		synctest.Test(t, func(t *testing.T) {
			may := make(chan struct{})
			r := newRig(t, bulk.Config{JobTimeout: time.Hour}, sends(may))
			s := every("s", "* * * * *")
			s.Overlap = overlap
			r.putSchedule(s)
			pass(3*time.Minute + 30*time.Second)
			_, err := r.RunNow(t.Context(), "s")
			if unfinished := new(bulk.UnfinishedError); errors.As(err, &unfinished) != (overlap == bulk.OverlapSkip) {
				t.Errorf("%s: RunNow beside a run: %v", overlap, err)
			}
			close(may)
			pass(time.Minute)
			if overlap == bulk.OverlapAllow {
				want = strings.Replace(want, " 20000101T000400Z", " "+asked(t, r)+" 20000101T000400Z", 1)
				r.expectOutcomes(5, 0, 0, 0)
			} else {
				r.expectOutcomes(2, 2, 0, 0)
				if s := r.scheduled("s"); !s.LastSkippedAt.Equal(time.Date(2000, 1, 1, 0, 3, 0, 0, time.UTC)) {
					t.Errorf("last skipped: %v", s.LastSkippedAt)
				}
			}
			r.expectRuns(want)
		})
	}
}

// asked returns the run started by RunNow.
func asked(t *testing.T, r *rig) string {
	t.Helper()
	for _, id := range strings.Fields(r.runs()) {
		if strings.Contains(id, ".") {
			return id
		}
	}
	t.Error("there is no run that was asked for")
	return "none"
}

// TestScheduleCatchesUp checks that of the runs missed while no server ran, the latest
// starts, if it is not too late.
func TestScheduleCatchesUp(t *testing.T) {
	for name, test := range map[string]struct {
		catchUp, away time.Duration
		want          string
		missed        int
	}{
		"by default":      {0, 30 * time.Minute, "20000101T010000Z", 0},
		"the latest":      {0, 3*time.Hour + 30*time.Minute, "20000101T040000Z", 3},
		"too late":        {10 * time.Minute, 3*time.Hour + 30*time.Minute, "", 4},
		"never":           {-1, 3*time.Hour + 30*time.Minute, "", 4},
		"back in no time": {-1, 5 * time.Second, "20000101T010000Z", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
				s := every("s", "@hourly")
				s.CatchUp = test.catchUp
				s = r.putSchedule(s)
				if err := r.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Until(s.NextRunAt) + test.away)
				r.Restart(t, sends(nil))
				pass(time.Second)
				r.expectRuns(test.want)
				made := len(strings.Fields(test.want))
				r.expectOutcomes(made, 0, test.missed, 0)
			})
		})
	}
}

func TestPauseAndResumeASchedule(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		r.putSchedule(every("s", "* * * * *"))
		pass(90 * time.Second)
		for range 2 { // a repeated call is no error
			s, err := r.PauseSchedule(t.Context(), "s")
			if err != nil || !s.Paused || !s.NextRunAt.IsZero() {
				t.Fatalf("paused: %+v, %v", s, err)
			}
		}
		pass(5 * time.Minute)
		if a, err := r.RunNow(t.Context(), "s"); err != nil || a.ID != "s:20000101T000630.001Z" {
			t.Fatalf("RunNow: %s, %v", a.ID, err)
		}
		// The requested fields may change during a pause, which remains.
		s := every("s", "@every 20s")
		if s = r.putSchedule(s); !s.Paused || !s.NextRunAt.IsZero() {
			t.Errorf("replaced during a pause: %+v", s)
		}
		s, err := r.ResumeSchedule(t.Context(), "s")
		if err != nil || s.Paused || !s.NextRunAt.Equal(time.Now().Add(20*time.Second)) {
			t.Fatalf("resumed: %+v, %v", s, err)
		}
		pass(30 * time.Second)
		r.expectRuns("20000101T000100Z 20000101T000630.001Z 20000101T000650Z")
		r.expectOutcomes(3, 0, 0, 0)
		for name, err := range map[string]error{
			"PauseSchedule":  second(r.PauseSchedule(t.Context(), "none")),
			"ResumeSchedule": second(r.ResumeSchedule(t.Context(), "none")),
			"RunNow":         second(r.RunNow(t.Context(), "none")),
			"Schedule":       second(r.Schedule(t.Context(), "none")),
			"RemoveSchedule": r.RemoveSchedule(t.Context(), "none"),
		} {
			if !errors.Is(err, bulk.ErrNoSchedule) {
				t.Errorf("%s of none: %v, want ErrNoSchedule", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestReplaceAndRemoveASchedule(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		first := r.putSchedule(every("s", "@every 1m"))
		pass(90 * time.Second)
		before := r.scheduled("s")
		same := every("s", " @every  1m ")
		same.CatchUp = time.Hour
		if s := r.putSchedule(same); s.Revision != before.Revision {
			t.Errorf("the same again: revision %d, want %d as before", s.Revision, before.Revision)
		}
		other := every("s", "@every 1m")
		other.Jobs = [][]byte{[]byte("3"), []byte("4")}
		s := r.putSchedule(other)
		if !s.NextRunAt.Equal(before.NextRunAt) || s.LastAction != before.LastAction || !s.CreatedAt.Equal(first.CreatedAt) || !s.UpdatedAt.After(first.UpdatedAt) {
			t.Errorf("other jobs: %+v; before: %+v", s, before)
		}
		other.Cron = "@every 2m"
		if s = r.putSchedule(other); !s.NextRunAt.Equal(time.Now().Add(2 * time.Minute).Truncate(time.Second)) {
			t.Errorf("another time: the next run is at %v", s.NextRunAt)
		}
		if err := r.RemoveSchedule(t.Context(), "s"); err != nil {
			t.Error(err)
		}
		pass(5 * time.Minute)
		r.expectRuns("20000101T000100Z")
		if all, err := r.Schedules(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%d schedules, %v; want none", len(all), err)
		}
		if s := r.putSchedule(every("s", "@every 1m")); s.LastAction != "" || s.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("made again: %+v, want a new one", s)
		}
	})
}

func TestPutScheduleRefuses(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		many := make([][]byte, bulk.MaxScheduleJobs+1)
		for field, change := range map[string]func(*bulk.Schedule){
			"name":         func(s *bulk.Schedule) { s.Name = "a:b" },
			"cron":         func(s *bulk.Schedule) { s.Cron = "0 0 30 2 *" },
			"time_zone":    func(s *bulk.Schedule) { s.TimeZone = "Berlin" },
			"overlap":      func(s *bulk.Schedule) { s.Overlap = "queue" },
			"catch_up_ms":  func(s *bulk.Schedule) { s.CatchUp = 8 * 24 * time.Hour },
			"jobs":         func(s *bulk.Schedule) { s.Jobs = nil },
			"jobs ":        func(s *bulk.Schedule) { s.Jobs = many },
			"jobs  ":       func(s *bulk.Schedule) { s.Jobs = [][]byte{make([]byte, bulk.MaxScheduleBytes), {0}} },
			"id":           func(s *bulk.Schedule) { s.Spec.ID = "mine" },
			"run_at":       func(s *bulk.Schedule) { s.Spec.RunAt = time.Now() },
			"replay_of":    func(s *bulk.Schedule) { s.Spec.ReplayOf = "a" },
			"tenant":       func(s *bulk.Schedule) { s.Spec.Tenant = "" },
			"aggregate":    func(s *bulk.Schedule) { s.Spec.Aggregate = []string{"median"} },
			"events":       func(s *bulk.Schedule) { s.Spec.Events = []string{bulk.JobEvents} },
			"max_attempts": func(s *bulk.Schedule) { s.Spec.MaxAttempts = 101 },
		} {
			s := every("s", "@daily")
			change(&s)
			_, _, err := r.PutSchedule(t.Context(), s)
			var schedule *bulk.ScheduleError
			var spec *bulk.SpecError
			got := ""
			if errors.As(err, &schedule) {
				got = schedule.Field
			} else if errors.As(err, &spec) {
				got = spec.Field
			}
			if got != strings.TrimSpace(field) {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

// crowded is a store whose other schedules use up the bytes of jobs.
type crowded struct{ bulk.Store }

func (c crowded) Schedules(context.Context) (all []bulk.Schedule, err error) {
	s := every("", "@daily")
	s.Jobs = [][]byte{make([]byte, bulk.MaxScheduleBytes)}
	for n := range bulk.MaxSchedulesBytes / bulk.MaxScheduleBytes {
		s.Name = fmt.Sprint("s", n)
		all = append(all, s)
	}
	return all, nil
}

// TestSchedulesFull checks that the jobs of all schedules together are bounded.
func TestSchedulesFull(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		e, err := engine.New(crowded{r.Store()}, bulk.NewMux(), r.config)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.PutSchedule(t.Context(), every("more", "@daily")); !errors.Is(err, bulk.ErrFull) {
			t.Errorf("one byte too many: %v, want ErrFull", err)
		}
		if _, _, err := e.PutSchedule(t.Context(), every("s0", "@daily")); err != nil {
			t.Errorf("fewer bytes than before: %v", err)
		}
	})
}

// TestScheduledIDTaken checks that a run fails if another action has its id, and that later
// runs start.
func TestScheduledIDTaken(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		r.submit(bulk.Spec{ID: "s:20000101T000100Z", Tenant: "somebody else", Type: "send"}, 2)
		r.putSchedule(every("s", "* * * * *"))
		pass(90 * time.Second)
		if s := r.scheduled("s"); s.LastAction != "" || !strings.Contains(s.LastError, "exists with another body") || !s.Pending.IsZero() {
			t.Errorf("%+v", s)
		}
		pass(time.Minute)
		if s := r.scheduled("s"); s.LastAction != "s:20000101T000200Z" || s.LastError != "" {
			t.Errorf("%+v", s)
		}
		r.expectOutcomes(1, 0, 0, 1)
	})
}

// TestScheduledRunCanceledEarly checks that an action that is canceled while it is filled
// counts as started.
func TestScheduledRunCanceledEarly(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		s := every("s", "* * * * *")
		spec := s.Spec
		spec.ID = "s:20000101T000100Z"
		if _, _, err := r.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Cancel(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
		r.putSchedule(s)
		pass(90 * time.Second)
		if s := r.scheduled("s"); s.LastAction != spec.ID || s.LastError != "" {
			t.Errorf("%+v", s)
		}
	})
}
