package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

// crashing is a store that fails each operation from a given one on, as if the process had
// died.
type crashing struct {
	bulk.Store
	left int
}

var errCrash = errors.New("the process died")

func (c *crashing) step() error {
	if c.left--; c.left < 0 {
		return errCrash
	}
	return nil
}

func (c *crashing) Create(ctx context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	if err := c.step(); err != nil {
		return bulk.Action{}, false, err
	}
	return c.Store.Create(ctx, spec)
}

func (c *crashing) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	if err := c.step(); err != nil {
		return 0, err
	}
	return c.Store.Append(ctx, id, offset, payloads)
}

func (c *crashing) Transition(ctx context.Context, id string, transition bulk.Transition) (bulk.Action, error) {
	if err := c.step(); err != nil {
		return bulk.Action{}, err
	}
	return c.Store.Transition(ctx, id, transition)
}

// flaky fails each job with an odd index in an action's first run.
func flaky() *bulk.Mux {
	return handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		if job.Spec.ReplayOf == "" && job.Index%2 == 1 {
			return nil, bulk.SkipRetry
		}
		return job.Payload, nil
	})
}

func TestReplayRunsDeadLettersAgain(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, flaky(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{ID: "a", Type: "send", Aggregate: []string{"count"}}, 300)
		bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 150, 150)
		again, err := r.Replay(r.t.Context(), id, bulk.FailureFilter{})
		if err != nil || again.ID != "a.replay-1" || again.ReplayOf != "a" || again.Total != 150 {
			t.Fatalf("replayed as %+v, error %v", again, err)
		}
		done := r.finish(again.ID)
		bulktest.RequireCounts(t, done, bulk.Completed, 150, 0)
		if string(done.Result["count"]) != "150" {
			t.Errorf("the result is %s", done.Result)
		}
		if n := len(r.letters(id)); n != 0 || r.action(id).Replays != 1 {
			t.Errorf("%d dead letters are left, replayed %d times", n, r.action(id).Replays)
		}
		var refused *bulk.TransitionError
		if _, err := r.Replay(r.t.Context(), id, bulk.FailureFilter{}); !errors.As(err, &refused) {
			t.Errorf("with nothing left: %v", err)
		}
	})
}

// TestReplaysOfLongIDs: ids of any length that begin alike have replays of their own, and so
// have their replays.
func TestReplaysOfLongIDs(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, handled(func(context.Context, *bulk.Job) ([]byte, error) { return nil, bulk.SkipRetry }), func(t *testing.T, r *rig) {
		seen := map[string]bool{}
		for _, length := range []int{112, 113, 118, 119, 120, 128} {
			for _, last := range []string{"x", "y"} {
				id := r.submit(bulk.Spec{ID: strings.Repeat("a", length-1) + last, Type: "send", Key: "customer 7"}, 1)
				for range 3 {
					r.finish(id)
					again, err := r.Replay(r.t.Context(), id, bulk.FailureFilter{})
					if err != nil || seen[again.ID] || again.ReplayOf != id || again.Key != "customer 7" || again.Total != 1 {
						t.Fatalf("%s, of %d characters: replayed as %s with %d jobs, error %v", id, len(id), again.ID, again.Total, err)
					}
					if whole := id + ".replay-1"; len(whole) <= 128 && again.ID != whole {
						t.Errorf("the replay of %s is %s", id, again.ID)
					}
					seen[again.ID], id = true, again.ID
				}
			}
		}
	})
}

func TestReplayRefuses(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, flaky(), func(t *testing.T, r *rig) {
		if _, err := r.Replay(r.t.Context(), "none", bulk.FailureFilter{}); !errors.Is(err, bulk.ErrNotFound) {
			t.Errorf("of no action: %v", err)
		}
		a, _, err := r.Create(r.t.Context(), bulk.Spec{Tenant: "t", Type: "send"})
		if err != nil {
			t.Fatal(err)
		}
		var refused *bulk.TransitionError
		if _, err := r.Replay(r.t.Context(), a.ID, bulk.FailureFilter{}); !errors.As(err, &refused) || refused.From != bulk.Created {
			t.Errorf("of an action that runs: %v", err)
		}
	})
}

// TestReplayGoesOnWhereItStopped checks that a replay that is interrupted after any number of
// operations, and repeated, loses no dead letter and runs none twice.
func TestReplayGoesOnWhereItStopped(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, flaky(), func(t *testing.T, r *rig) {
		for moves := range 10 {
			id := r.submit(bulk.Spec{ID: fmt.Sprint("a", moves), Type: "send"}, 400)
			r.finish(id)
			crashed, err := engine.New(&crashing{Store: r.Store(), left: moves}, bulk.NewMux(), bulk.Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = crashed.Replay(r.t.Context(), id, bulk.FailureFilter{})
			whole := err == nil
			if err != nil && !errors.Is(err, errCrash) {
				t.Fatalf("after %d moves: %v", moves, err)
			}
			again, err := r.Replay(r.t.Context(), id, bulk.FailureFilter{})
			var refused *bulk.TransitionError
			switch {
			case whole && !errors.As(err, &refused):
				t.Fatalf("%d moves were enough, but called again: %v", moves, err)
			case !whole && err != nil:
				t.Fatalf("after %d moves, called again: %v", moves, err)
			case !whole && again.Total != 200:
				t.Fatalf("after %d moves, called again: %d jobs, want 200", moves, again.Total)
			}
			bulktest.RequireCounts(t, r.finish(id+".replay-1"), bulk.Completed, 200, 0)
			if n := len(r.letters(id)); n != 0 {
				t.Errorf("after %d moves, called again: %d dead letters are left", moves, n)
			}
			if whole && moves < 5 {
				t.Errorf("a replay of four batches was done in %d moves", moves)
			}
		}
	})
}
