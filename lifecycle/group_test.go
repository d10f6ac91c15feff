package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// untilEnd does nothing until the context ends.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func failed(g *lifecycle.Group) bool {
	select {
	case <-g.Failed():
		return true
	default:
		return false
	}
}

func TestGroupStopEndsItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(t.Context())
		g.Go("loop", untilEnd)
		g.Go("once", func(context.Context) error { return nil })
		synctest.Wait()
		if failed(g) {
			t.Fatalf("the group failed with %v, want no failure", g.Err())
		}
		for range 2 {
			if err := g.Stop(within(t, time.Second)); err != nil {
				t.Fatalf("Stop: %v", err)
			}
		}
		if failed(g) {
			t.Fatalf("being stopped counted as a failure: %v", g.Err())
		}
	})
}

func TestGroupKeepsTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := errors.New("disk on fire")
		g := lifecycle.NewGroup(t.Context())
		g.Go("writer", func(context.Context) error { <-time.After(time.Second); return first })
		g.Go("reader", func(context.Context) error { <-time.After(2 * time.Second); return errors.New("second") })
		g.Go("other", untilEnd)

		<-g.Failed()
		<-time.After(time.Minute)
		if err := g.Err(); !errors.Is(err, first) || err.Error() != "writer: disk on fire" {
			t.Fatalf("Err() = %v, want the first failure and its goroutine's name", err)
		}
		if err := g.Stop(within(t, time.Second)); !errors.Is(err, first) {
			t.Fatalf("Stop() = %v, want the failure", err)
		}
	})
}

// The end of another context is a failure: Stop was not called.
func TestGroupCancellationFromElsewhereIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(t.Context())
		g.Go("fetcher", func(context.Context) error { return fmt.Errorf("fetch: %w", context.Canceled) })
		synctest.Wait()
		if !failed(g) {
			t.Fatal("the group did not fail, though its goroutine ended with an error before Stop")
		}
		if err := g.Stop(within(t, time.Second)); !errors.Is(err, context.Canceled) {
			t.Fatalf("Stop() = %v, want the failure", err)
		}
	})
}

func TestGroupStopNamesWhatStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(t.Context())
		release := make(chan struct{})
		stubborn := func(context.Context) error { <-release; return nil }
		g.Go("slow", stubborn)
		g.Go("quick", untilEnd)
		g.Go("slower", stubborn)

		began := time.Now()
		err := g.Stop(within(t, 5*time.Second))
		if err == nil || err.Error() != "did not stop in time: slow, slower" {
			t.Fatalf("Stop() = %v, want the names of the two that still run", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Fatalf("Stop took %v, want its deadline of 5s", took)
		}
		close(release)
		if err := g.Stop(within(t, time.Second)); err != nil {
			t.Fatalf("Stop after they ended: %v", err)
		}
	})
}

func TestGroupStopAddsItsFailureToTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(t.Context())
		release := make(chan struct{})
		g.Go("broken", func(context.Context) error { return errors.New("broken pipe") })
		g.Go("slow", func(context.Context) error { <-release; return nil })
		err := g.Stop(within(t, time.Second))
		for _, want := range []string{"broken: broken pipe", "did not stop in time: slow"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Stop() = %v, want it to say %q", err, want)
			}
		}
		close(release)
	})
}

// With nothing left to wait for, a deadline that has passed is no failure.
func TestGroupStopAfterTheDeadlineWithNothingRunning(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select chooses at random
		if err := lifecycle.NewGroup(t.Context()).Stop(over); err != nil {
			t.Fatalf("Stop() = %v, want nil: nothing runs", err)
		}
	}
}

func TestGroupRunsNothingAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(t.Context())
		if err := g.Stop(within(t, time.Second)); err != nil {
			t.Fatal(err)
		}
		var ran atomic.Bool
		g.Go("late", func(context.Context) error { ran.Store(true); return nil })
		synctest.Wait()
		if ran.Load() {
			t.Fatal("a goroutine was started after Stop")
		}
	})
}

// The context that makes the group gives its values, but does not end it.
func TestGroupOutlivesTheContextItWasMadeWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		starting, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		g := lifecycle.NewGroup(starting)
		var ended atomic.Bool
		g.Go("loop", func(ctx context.Context) error {
			if ctx.Value(key{}) != "value" {
				return errors.New("the context's value is gone")
			}
			<-ctx.Done()
			ended.Store(true)
			return ctx.Err()
		})
		cancel()
		synctest.Wait()
		if ended.Load() {
			t.Fatal("the goroutine ended with the context of Start")
		}
		if err := g.Stop(within(t, time.Second)); err != nil {
			t.Fatal(err)
		}
	})
}
