package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// upstream answers each visitor inside once a second, and more slowly the more it has than it can
// hold. A visit ends when it is asked to.
type upstream struct {
	inside, holds int64
}

func (u *upstream) take() engine.Upstream {
	took := 50 * time.Millisecond
	if u.inside > u.holds {
		took *= time.Duration(u.inside * 4 / u.holds)
	}
	return engine.Upstream{
		Length: time.Second, Started: u.inside, Answered: min(u.inside, u.holds), InFlight: max(0, u.inside-u.holds),
		Took: time.Duration(min(u.inside, u.holds)) * took,
	}
}

// auto returns the settings of a room that finds its capacity.
func auto(least, most int64) room.Settings {
	s := teller(room.Auto)
	s.AutoMin, s.AutoMax, s.PassTTL, s.AbandonAfter, s.ClaimWindow = least, most, time.Hour, time.Hour, 10*time.Minute
	return s
}

func (r *rig) view(name string) engine.View {
	r.t.Helper()
	view, err := r.Room(ctx, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return view
}

func startTuner(t *testing.T, r *rig, take func() engine.Upstream) *engine.Tuner {
	t.Helper()
	tuner := r.NewTuner(func() map[string]engine.Upstream {
		if up := take(); up.Started > 0 {
			return map[string]engine.Upstream{"shop": up}
		}
		return nil
	})
	if err := tuner.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return tuner
}

// A room lets in as many as its upstream holds: first the least, then more while others wait, and no
// more than is set.
func TestCapacityIsFound(t *testing.T) {
	for _, test := range []struct{ most, low, high int64 }{{10_000, 70, 115}, {40, 40, 40}} {
		inVirtualTime(t, func(t *testing.T, r *rig) {
			r.put("shop", auto(10, test.most))
			for range 300 {
				r.enter("shop")
			}
			time.Sleep(time.Second)
			if view := r.view("shop"); view.Status.Inside != 10 || *view.Found != 10 {
				t.Errorf("at first %d are inside, of %d; want the least that is set", view.Status.Inside, *view.Found)
			}
			shop := &upstream{holds: 100}
			tuner := startTuner(t, r, func() engine.Upstream {
				shop.inside = r.view("shop").Status.Inside
				return shop.take()
			})
			time.Sleep(time.Minute)
			if view := r.view("shop"); view.Status.Inside < test.low || view.Status.Inside > test.high {
				t.Errorf("an upstream that holds 100 has %d, want %d to %d", view.Status.Inside, test.low, test.high)
			}
			if err := tuner.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// Of two instances one observes the upstream; when it sees no requests any more, the other does.
func TestOneInstanceFindsTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		a, b := newRig(t, store), newRig(t, store)
		a.put("shop", auto(10, 50))
		for range 100 {
			a.enter("shop")
		}
		idle := func() engine.Upstream { return engine.Upstream{Length: time.Second} }
		first := startTuner(t, a, idle)
		shop := &upstream{holds: 1000}
		second := startTuner(t, b, func() engine.Upstream {
			shop.inside = b.view("shop").Status.Inside
			return shop.take()
		})
		time.Sleep(time.Minute)
		if view := a.view("shop"); *view.Found != 50 {
			t.Errorf("the capacity that one of two instances found is %d, want the most that is set, 50", *view.Found)
		}
		for _, tuner := range []*engine.Tuner{first, second} {
			if err := tuner.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
		a.stop()
		b.stop()
	})
}

// An upstream's report of its health goes before what is observed, as long as it is fresh.
func TestHealthIsReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", auto(10, 1000))
		for range 300 {
			r.enter("shop")
		}
		report := func(utilization float64) int64 {
			t.Helper()
			view, err := r.ReportHealth(ctx, "shop", utilization)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return *view.Found
		}
		for range 30 {
			report(0.1)
		}
		full := *r.view("shop").Found
		if full < 100 {
			t.Fatalf("after 30 reports of an idle upstream the capacity is %d, want it to rise by a tenth each", full)
		}
		if got := report(0.85); got != full {
			t.Errorf("with as much load as wanted the capacity went from %d to %d", full, got)
		}
		if got := report(1.7); got != full/2 {
			t.Errorf("with twice the load that is wanted the capacity went from %d to %d, want half", full, got)
		}
		if got := report(0.1); got <= full/2 || got > full/2+full/20+1 {
			t.Errorf("a report of little load raised the capacity from %d to %d, want a tenth at the most", full/2, got)
		}
		for _, utilization := range []float64{-1, 101} {
			var wrong *room.SettingsError
			if _, err := r.ReportHealth(ctx, "shop", utilization); !errors.As(err, &wrong) {
				t.Errorf("a utilization of %g: %v", utilization, err)
			}
		}
		r.put("other", teller(5))
		var wrong *room.SettingsError
		if _, err := r.ReportHealth(ctx, "other", 0.5); !errors.As(err, &wrong) {
			t.Errorf("the health of a room with a capacity of its own: %v", err)
		}
	})
}
