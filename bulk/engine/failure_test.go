package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

func TestCauses(t *testing.T) {
	for text, want := range map[string]string{
		"target api.example.com:443 answered 503 Service Unavailable: target x answered 400":     "503",
		"timed out after 3s: target [::1]:80 answered 599":                                       "599",
		"charge: target a:1 answered 504 Gateway Timeout":                                        "504",
		"timed out after 3s: target a:1: no full answer within the attempt's timeout: context …": bulk.CauseTimeout,
		"read tcp: i/o TIMEOUT":     bulk.CauseTimeout,
		"context deadline exceeded": bulk.CauseTimeout,
		"target a:1 answered 5030":  "",
		"target a:1 answered 999":   "999",
		"no such customer":          "",
		"":                          "",
	} {
		if got := bulk.Cause(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestFailuresAreSelected(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	letter := bulk.DeadLetter{Error: "target a:1 answered 503 Service Unavailable: Busy", FailedAt: at}
	for _, test := range []struct {
		filter bulk.FailureFilter
		want   bool
	}{
		{bulk.FailureFilter{}, true}, {bulk.FailureFilter{Cause: "503"}, true}, {bulk.FailureFilter{Cause: "5xx"}, true},
		{bulk.FailureFilter{Cause: "4xx"}, false}, {bulk.FailureFilter{Cause: "500"}, false}, {bulk.FailureFilter{Cause: bulk.CauseTimeout}, false},
		{bulk.FailureFilter{Error: "buSY"}, true}, {bulk.FailureFilter{Error: "bus "}, false},
		{bulk.FailureFilter{Since: at}, true}, {bulk.FailureFilter{Since: at.Add(1)}, false},
		{bulk.FailureFilter{Until: at}, false}, {bulk.FailureFilter{Until: at.Add(1)}, true},
		{bulk.FailureFilter{Cause: "5xx", Error: "unavail", Since: at, Until: at.Add(time.Hour)}, true},
		{bulk.FailureFilter{Cause: "5xx", Error: "gone"}, false},
	} {
		if got := test.filter.Match(&letter); got != test.want {
			t.Errorf("%+v: %v", test.filter, got)
		}
	}
}

// TestReplayOfSome runs one kind of failures again, in virtual time: an hour after the others failed.
func TestReplayOfSome(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, mixed(), func(t *testing.T, r *rig) {
		began := time.Now()
		for _, id := range []string{"early", "late"} {
			r.finish(r.submit(bulk.Spec{ID: id, Type: "send", Tenant: "acme"}, 300))
			<-time.After(time.Hour)
		}
		const all, some = 200, 100
		count := func(c engine.Change) engine.Changed {
			c.Do, c.DryRun = engine.DoReplay, true
			done, err := r.Change(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		timeouts := bulk.FailureFilter{Cause: bulk.CauseTimeout}
		for _, test := range []struct {
			change  engine.Change
			actions int
			jobs    int64
		}{
			{engine.Change{Action: "early"}, 1, all}, {engine.Change{Action: "early", Only: timeouts}, 1, some},
			{engine.Change{Only: bulk.FailureFilter{Cause: "5xx"}}, 2, 2 * some}, {engine.Change{Callee: "send", Only: bulk.FailureFilter{Error: "NO SUCH"}}, 0, 0},
			{engine.Change{Only: bulk.FailureFilter{Since: began.Add(time.Hour)}}, 1, all}, {engine.Change{Callee: "other", Only: timeouts}, 0, 0},
			{engine.Change{Only: bulk.FailureFilter{Until: began.Add(time.Hour)}, Tenant: "acme"}, 1, all},
		} {
			if got := count(test.change); got.Changed != test.actions || got.Jobs != test.jobs {
				t.Errorf("%+v: %+v, want %d actions with %d jobs", test.change, got, test.actions, test.jobs)
			}
		}
		done, err := r.Change(t.Context(), engine.Change{Do: engine.DoReplay, Only: timeouts})
		if err != nil || done.Changed != 2 || done.Jobs != 2*some {
			t.Fatalf("replayed %+v, error %v", done, err)
		}
		bulktest.RequireCounts(t, r.finish("early.replay-1"), bulk.Completed, some, 0)
		if n := len(r.letters("early")); n != all-some {
			t.Errorf("%d dead letters are left", n)
		}
		if got := count(engine.Change{Action: "early"}); got.Jobs != all-some {
			t.Errorf("the rest counts as %+v", got)
		}
		var refused *bulk.TransitionError
		if _, err := r.Replay(t.Context(), "early", timeouts); !errors.As(err, &refused) {
			t.Errorf("replayed again: %v", err)
		}
		again, err := r.Replay(t.Context(), "early", bulk.FailureFilter{})
		if err != nil || again.ID != "early.replay-2" || again.Total != all-some || len(r.letters("early")) != 0 {
			t.Errorf("the rest: %+v, error %v", again, err)
		}
		for _, wrong := range []bulk.FailureFilter{{Cause: "56x"}, {Cause: "Timeout"}, {Since: began, Until: began}} {
			if _, err := r.Replay(t.Context(), "late", wrong); !errors.As(err, new(*engine.ChangeError)) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
	})
}

// mixed fails two of three jobs of an action's first run: with a status, and as a timeout.
func mixed() *bulk.Mux {
	return handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		if job.Spec.ReplayOf != "" || job.Index%3 == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", []string{"", "target a:1 answered 502", "it timed out"}[job.Index%3], bulk.SkipRetry)
	})
}

// TestReplayOfSomeIsCompleted interrupts a replay of some dead letters after any number of operations, and then makes one of
// others: each job runs once, whatever was interrupted.
func TestReplayOfSomeIsCompleted(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, mixed(), func(t *testing.T, r *rig) {
		timeouts, answers := bulk.FailureFilter{Cause: bulk.CauseTimeout}, bulk.FailureFilter{Cause: "502"}
		for moves := range 9 {
			for _, second := range []bulk.FailureFilter{timeouts, answers, {}} {
				id := r.submit(bulk.Spec{Type: "send"}, 400)
				r.finish(id)
				crashed, err := engine.New(&crashing{Store: r.Store(), left: moves}, bulk.NewMux(), bulk.Config{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err = crashed.Replay(t.Context(), id, timeouts); err != nil && !errors.Is(err, errCrash) {
					t.Fatalf("after %d moves: %v", moves, err)
				}
				if _, err := r.Replay(t.Context(), id, second); err != nil && !errors.As(err, new(*bulk.TransitionError)) {
					t.Fatalf("after %d moves, then %+v: %v", moves, second, err)
				}
				for _, rest := range []bulk.FailureFilter{timeouts, {}} {
					if _, err := r.Replay(t.Context(), id, rest); err != nil && !errors.As(err, new(*bulk.TransitionError)) {
						t.Fatal(err)
					}
				}
				var ran int64
				for n := range r.action(id).Replays {
					ran += r.finish(fmt.Sprintf("%s.replay-%d", id, n+1)).Succeeded
				}
				if failed := r.action(id).Failed; ran != failed || len(r.letters(id)) > 0 {
					t.Errorf("after %d moves, then %+v: %d of %d failures ran again, %d are left", moves, second, ran, failed, len(r.letters(id)))
				}
			}
		}
	})
}

// TestLettersOfBothKinds: a list that looks for some reads a bounded part, and its pages have each letter once.
func TestLettersOfBothKinds(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, mixed(), func(t *testing.T, r *rig) {
		var want []string
		for _, id := range []string{"a", "b"} {
			r.finish(r.submit(bulk.Spec{ID: id, Type: "send", Tenant: "acme"}, 30))
			for i := int64(2); i < 30; i += 3 {
				want = append(want, bulk.JobID(id, i))
			}
		}
		for _, limit := range []int{1, 3, 10, 20, 100} {
			var got []string
			f := engine.LetterFilter{FailureFilter: bulk.FailureFilter{Cause: bulk.CauseTimeout}, Tenant: "acme", Type: "send", Limit: limit}
			for pages := 0; pages == 0 || f.After != ""; pages++ {
				page, err := engine.FindLetters(t.Context(), r, f)
				if err != nil || len(page.Found) > limit || pages > 20 {
					t.Fatalf("page %d of %d: %v", pages, len(page.Found), err)
				}
				for i := range page.Found {
					got = append(got, bulk.JobID(page.Found[i].Action, page.Found[i].Index))
				}
				f.After = page.Next
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d: %v", limit, got)
			}
		}
	})
}
