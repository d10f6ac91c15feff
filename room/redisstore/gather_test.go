package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sluice-project/sluice/room"
)

// gated returns a gather whose calls wait for the gate, and what it was called with.
func gated(gate <-chan error) (*gather[string, int, int], *[][]int) {
	var calls [][]int
	return newGather(func(_ context.Context, _ string, of []int) ([]int, error) {
		calls = append(calls, slices.Clone(of))
		return of, <-gate
	}), &calls
}

// Calls that come while one is in progress are made together, in their order and at most maxGathered
// at once, those with other terms apart; each caller gets its own result, though another has left.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan error)
		g, calls := gated(gate)
		ctx, leave := context.WithCancel(t.Context())
		errs := make([]error, 3+maxGathered)
		for i := range errs {
			go func() {
				of, terms := t.Context(), "old"
				switch i {
				case 2:
					of = ctx
				case len(errs) - 1:
					terms = "new"
				}
				var out int
				if out, errs[i] = g.do(of, "shop", terms, i); errs[i] == nil && out != i {
					t.Errorf("%d got the result of %d", i, out)
				}
			}()
			synctest.Wait()
		}
		leave()
		for range 4 {
			gate <- nil
			synctest.Wait()
		}
		g.close()
		want := [][]int{{0}, nil, {maxGathered + 1}, {maxGathered + 2}}
		for i := range maxGathered {
			want[1] = append(want[1], i+1)
		}
		if !slices.EqualFunc(*calls, want, slices.Equal[[]int]) {
			t.Errorf("the calls were %v, want %v", *calls, want)
		}
		for i, err := range errs {
			if (i == 2) != errors.Is(err, context.Canceled) || i != 2 && err != nil {
				t.Errorf("%d got %v", i, err)
			}
		}
		if _, err := g.do(t.Context(), "shop", "old", 1); !errors.Is(err, room.ErrClosed) {
			t.Errorf("a call after the end got %v", err)
		}
	})
}

// While calls fail, nobody who waits for the same room makes another.
func TestGatherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan error)
		g, calls := gated(gate)
		failed, down := make(chan error, 3*maxGathered), errors.New("down")
		for i := range cap(failed) {
			go func() {
				_, err := g.do(t.Context(), "shop", "old", i)
				failed <- err
			}()
		}
		synctest.Wait()
		gate <- down
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, down) {
				t.Errorf("a caller got %v", err)
			}
		}
		go func() { gate <- nil }()
		if _, err := g.do(t.Context(), "shop", "old", 1); err != nil || len(*calls) != 2 {
			t.Errorf("later there is %v after %d calls", err, len(*calls))
		}
		g.close()
	})
}
