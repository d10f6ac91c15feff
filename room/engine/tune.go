package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

const (
	// tuneInterval is the length of a window in which an upstream is observed.
	tuneInterval = time.Second
	// tuneTTL is after how long another instance observes the upstream in place of one that
	// is gone.
	tuneTTL = 5 * time.Second
	// tuneStep is the least share by which a number that was found changes what is stored:
	// each change makes all instances read the room again.
	tuneStep = 0.02
	// ReportLasts is how long a report of an upstream's health counts: for that long the
	// upstream is not observed in another way.
	ReportLasts = time.Minute
	// maxUtilization is the highest that an upstream may report.
	maxUtilization = 100
)

// Tuner finds the capacity or the batch of rooms that are Auto from how their upstreams answer. It
// is a [lifecycle.Service]. Of several instances that see the same upstream, one does so at a
// time, from the requests that it sees itself.
type Tuner struct {
	*lifecycle.Group
	engine *Engine
	take   func() map[string]Upstream
	found  map[string]*autoCapacity
}

// NewTuner returns a tuner. Take returns how upstreams answered since the last call, by the rooms
// whose visitors made the requests.
func (e *Engine) NewTuner(take func() map[string]Upstream) *Tuner {
	return &Tuner{Group: lifecycle.NewGroup(context.Background()), engine: e, take: take, found: map[string]*autoCapacity{}}
}

// Name implements lifecycle.Service.
func (t *Tuner) Name() string { return "tuner of rooms" }

// Start implements lifecycle.Service.
func (t *Tuner) Start(context.Context) error {
	t.Go(t.Name(), func(ctx context.Context) error {
		return t.engine.regularly(ctx, "find the capacity of rooms", tuneInterval, func() error { return t.observe(ctx) })
	})
	return nil
}

// observe takes a window.
func (t *Tuner) observe(ctx context.Context) error {
	seen := t.take()
	maps.DeleteFunc(t.found, func(name string, _ *autoCapacity) bool { return seen[name].Length == 0 })
	var errs []error
	for name, up := range seen {
		observes, err := t.observeRoom(ctx, name, up)
		if errs = append(errs, err); !observes {
			delete(t.found, name)
		}
	}
	return errors.Join(errs...)
}

// observeRoom takes a window of one room, and reports whether this instance observes its upstream.
func (t *Tuner) observeRoom(ctx context.Context, name string, up Upstream) (observes bool, err error) {
	e := t.engine
	k, err := e.catalog.get(ctx, name)
	if errors.Is(err, room.ErrNoRoom) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	r := k.room.Load()
	if r.Settings.Limit() != room.Auto {
		return false, nil
	}
	if owns, err := e.store.Own(ctx, "tuner of "+name, e.catalog.holder, tuneTTL); err != nil || !owns {
		return false, err
	}
	status, err := e.store.Status(ctx, name)
	if err != nil || status.Now.Sub(r.ReportedAt) < ReportLasts {
		return false, err
	}
	a := t.found[name]
	if a == nil {
		a = &autoCapacity{capacity: r.visitors(r.Limit())}
		t.found[name] = a
	}
	found := a.observe(up, float64(status.Inside), float64(status.Waiting),
		r.visitors(r.Settings.AutoMin), r.visitors(r.Settings.AutoMax))
	return true, e.setFound(ctx, r, found, time.Time{})
}

// visitors returns how many visitors are inside when the capacity or batch is n.
func (r *Room) visitors(n int64) float64 {
	if r.Settings.Mode == room.Park {
		return float64(n) * float64(r.Settings.Stay) / float64(r.Settings.Interval)
	}
	return float64(n)
}

// setFound stores how many visitors an upstream can hold, if that differs enough, and when it
// reported its health.
func (e *Engine) setFound(ctx context.Context, r *Room, visitors float64, reported time.Time) error {
	n := int64(math.Round(visitors / r.visitors(1)))
	n = min(max(n, r.Settings.AutoMin), r.Settings.AutoMax)
	was := r.Limit()
	if reported.Sub(r.ReportedAt) < ReportLasts/2 && math.Abs(float64(n-was)) < max(1, tuneStep*float64(was)) {
		return nil
	}
	_, err := e.changeExisting(ctx, r.Name, func(r *Room) {
		r.Found = n
		if !reported.IsZero() {
			r.ReportedAt = reported
		}
	})
	if errors.Is(err, room.ErrNoRoom) {
		return nil
	}
	return err
}

// ReportHealth takes an upstream's own report: its utilization, 1 when it has all the load that
// it can serve well, up to 100. The capacity or batch of a room that is Auto follows it, within
// its bounds, and the upstream is not observed in another way for ReportLasts. For another room or
// value it returns a *SettingsError.
func (e *Engine) ReportHealth(ctx context.Context, name string, utilization float64) (View, error) {
	if !(utilization >= 0 && utilization <= maxUtilization) {
		return View{}, &room.SettingsError{Field: "utilization", Why: fmt.Sprintf("is %g; give a number from 0 to %d", utilization, maxUtilization)}
	}
	k, err := e.catalog.get(ctx, name)
	if err != nil {
		return View{}, err
	}
	r := k.room.Load()
	if r.Settings.Limit() != room.Auto {
		return View{}, &room.SettingsError{Field: "utilization", Why: `decides nothing in this room; set its capacity or batch to "auto"`}
	}
	status, err := e.store.Status(ctx, name)
	if err != nil {
		return View{}, err
	}
	found := byUtilization(r.visitors(r.Limit()), float64(status.Inside), utilization)
	if err := e.setFound(ctx, r, found, status.Now); err != nil {
		return View{}, err
	}
	return e.Room(ctx, name)
}
