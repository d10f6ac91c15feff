package room

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
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

// Tuner finds the capacity or the batch of a room that is Auto from how an upstream answers. It
// is a [lifecycle.Service]. Of several instances that see the same upstream, one does so at a
// time, from the requests that it sees itself.
type Tuner struct {
	*lifecycle.Group
	engine *Engine
	room   string
	take   func() Upstream
	found  *autoCapacity
}

// NewTuner returns a tuner of a room. Take returns how the upstream answered since the last
// call.
func (e *Engine) NewTuner(name string, take func() Upstream) *Tuner {
	return &Tuner{Group: lifecycle.NewGroup(context.Background()), engine: e, room: name, take: take}
}

// Name implements lifecycle.Service.
func (t *Tuner) Name() string { return "capacity of room " + t.room }

// Start implements lifecycle.Service.
func (t *Tuner) Start(context.Context) error {
	t.Go(t.Name(), func(ctx context.Context) error {
		return t.engine.regularly(ctx, "find the capacity of room "+t.room, tuneInterval, func() error { return t.observe(ctx) })
	})
	return nil
}

// observe takes a window.
func (t *Tuner) observe(ctx context.Context) error {
	up, e := t.take(), t.engine
	k, err := e.catalog.get(ctx, t.room)
	if errors.Is(err, ErrNoRoom) {
		return nil
	} else if err != nil {
		return err
	}
	r := k.room.Load()
	if r.Settings.limit() != Auto {
		t.found = nil
		return nil
	}
	if up.Length == 0 {
		return nil
	}
	owns, err := t.own(ctx, &up)
	if err != nil || !owns {
		t.found = nil
		return err
	}
	status, err := e.store.Status(ctx, t.room)
	if err != nil {
		return err
	}
	if status.Now.Sub(r.ReportedAt) < ReportLasts {
		t.found = nil
		return nil
	}
	if t.found == nil {
		t.found = &autoCapacity{capacity: r.visitors(r.Limit())}
	}
	found := t.found.observe(up, float64(status.Inside), float64(status.Waiting),
		r.visitors(r.Settings.AutoMin), r.visitors(r.Settings.AutoMax))
	return e.setFound(ctx, r, found, time.Time{})
}

// own reports whether this instance is the one that observes the upstream. An instance that
// sees no request leaves it to others.
func (t *Tuner) own(ctx context.Context, up *Upstream) (bool, error) {
	ttl := tuneTTL
	if up.Started+up.Answered+up.Refused == 0 {
		ttl = 0
	}
	owns, err := t.engine.store.Own(ctx, "tuner of "+t.room, t.engine.catalog.holder, ttl)
	return owns && ttl > 0, err
}

// visitors returns how many visitors are inside when the capacity or batch is n.
func (r *Room) visitors(n int64) float64 {
	if r.Settings.Mode == Park {
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
	if errors.Is(err, ErrNoRoom) {
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
		return View{}, &SettingsError{"utilization", fmt.Sprintf("is %g; give a number from 0 to %d", utilization, maxUtilization)}
	}
	k, err := e.catalog.get(ctx, name)
	if err != nil {
		return View{}, err
	}
	r := k.room.Load()
	if r.Settings.limit() != Auto {
		return View{}, &SettingsError{"utilization", `decides nothing in this room; set its capacity or batch to "auto"`}
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
