package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// diary records events in order.
type diary struct{ entries []string }

func (d *diary) note(entry string) { d.entries = append(d.entries, entry) }

// fake is a service that behaves as its fields say.
type fake struct {
	*lifecycle.Group
	name      string
	diary     *diary
	startErr  error
	startsFor time.Duration
	stopsFor  time.Duration
	stopErr   error
}

func newFake(t *testing.T, name string, d *diary) *fake {
	return &fake{Group: lifecycle.NewGroup(t.Context()), name: name, diary: d}
}

func (f *fake) Name() string { return f.name }

func (f *fake) Start(ctx context.Context) error {
	select {
	case <-time.After(f.startsFor):
	case <-ctx.Done():
		f.diary.note("interrupt " + f.name)
		return ctx.Err()
	}
	f.diary.note("start " + f.name)
	return f.startErr
}

func (f *fake) Stop(ctx context.Context) error {
	f.diary.note("stop " + f.name)
	select {
	case <-time.After(f.stopsFor):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := f.Group.Stop(ctx); err != nil {
		return err
	}
	return f.stopErr
}

func (d *diary) check(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(d.entries, want) {
		t.Fatalf("happened: %s\nwant:     %s", strings.Join(d.entries, ", "), strings.Join(want, ", "))
	}
}

func TestRunStartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a, b, c := newFake(t, "a", &d), newFake(t, "b", &d), newFake(t, "c", &d)
		if err := lifecycle.Run(within(t, time.Hour), time.Minute, a, b, c); err != nil {
			t.Fatalf("Run() = %v, want nil: its context ended", err)
		}
		d.check(t, "start a", "start b", "start c", "stop c", "stop b", "stop a")
	})
}

func TestRunStopsWhatWasStartedWhenAStartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a, b, c := newFake(t, "a", &d), newFake(t, "b", &d), newFake(t, "c", &d)
		b.startErr = errors.New("address in use")
		err := lifecycle.Run(t.Context(), time.Minute, a, b, c)
		if !errors.Is(err, b.startErr) || err.Error() != "start b: address in use" {
			t.Fatalf("Run() = %v, want the failure and whose it is", err)
		}
		d.check(t, "start a", "start b", "stop a")
	})
}

func TestRunEndsWhenAServiceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a, b := newFake(t, "a", &d), newFake(t, "b", &d)
		broken := errors.New("broken")
		a.Go("loop", func(context.Context) error { <-time.After(time.Second); return broken })
		began := time.Now()
		err := lifecycle.Run(t.Context(), time.Minute, a, b)
		if !errors.Is(err, broken) || strings.Count(err.Error(), "broken") != 1 {
			t.Fatalf("Run() = %v, want the failure, once", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Fatalf("Run took %v, want 1s: until the failure", took)
		}
		d.check(t, "start a", "start b", "stop b", "stop a")
	})
}

// All services share one grace period; the error names each that exceeds it.
func TestRunNamesWhatDidNotStopInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		quick, slow, first := newFake(t, "quick", &d), newFake(t, "slow", &d), newFake(t, "first", &d)
		slow.stopsFor = time.Hour
		first.stopErr = errors.New("flush failed")
		began := time.Now()
		err := lifecycle.Run(within(t, time.Minute), 10*time.Second, quick, slow, first)
		if took := time.Since(began); took != 70*time.Second {
			t.Fatalf("Run took %v, want 70s: one minute and the grace of 10s", took)
		}
		for _, want := range []string{"stop first: flush failed", "stop slow: context deadline exceeded"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run() = %v, want it to say %q", err, want)
			}
		}
		d.check(t, "start quick", "start slow", "start first", "stop first", "stop slow", "stop quick")
	})
}

// Two services may fail in the same way: neither hides the other.
func TestRunReportsTheSameErrorOfTwoServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a, b := newFake(t, "a", &d), newFake(t, "b", &d)
		same := errors.New("the disk is full")
		a.Go("loop", func(context.Context) error { return same })
		b.stopErr = same
		err := lifecycle.Run(t.Context(), time.Minute, a, b)
		for _, want := range []string{"a: loop: the disk is full", "stop b: the disk is full"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run() = %v, want it to say %q", err, want)
			}
		}
	})
}

// The end of the context while services start is not a failure.
func TestRunEndedWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a, b, c := newFake(t, "a", &d), newFake(t, "b", &d), newFake(t, "c", &d)
		b.startsFor = time.Hour
		if err := lifecycle.Run(within(t, time.Minute), time.Minute, a, b, c); err != nil {
			t.Fatalf("Run() = %v, want nil: its context ended", err)
		}
		d.check(t, "start a", "interrupt b", "stop a")
	})
}
