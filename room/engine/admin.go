package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

// PutRoom creates a room, or changes its settings; created reports which. New settings
// hold immediately, for visitors inside and in line too, but passes keep their ends. A
// setting that is out of range, or that could worsen a position already shown, is a
// *SettingsError. ErrTooManyRooms if there are MaxRooms, and ErrConflict if others keep
// changing the room.
func (e *Engine) PutRoom(ctx context.Context, name string, s room.Settings) (view View, created bool, err error) {
	return e.PutRoomOf(ctx, room.Owner{}, name, s)
}

// PutRoomOf is PutRoom; a room that it creates has that owner. A *room.QuotaError if the owner may have no more: that is exact
// over all instances.
func (e *Engine) PutRoomOf(ctx context.Context, by room.Owner, name string, s room.Settings) (view View, created bool, err error) {
	if err := room.ValidName(name); err != nil {
		return View{}, false, err
	}
	s = s.WithDefaults()
	if err := ValidateSettings(s); err != nil {
		return View{}, false, err
	}
	if by.Most > 0 {
		done, err := e.beginMaking(ctx)
		if err != nil {
			return View{}, false, err
		}
		defer done()
	}
	r, err := e.change(ctx, by, name, func(r *Room) (*Room, error) {
		if r == nil {
			created = true
			return e.newRoom(ctx, by, name, s)
		}
		if s.Codes && len(r.CodeKey) == 0 {
			r.CodeKey = room.NewSeed()
		}
		created = false
		if err := e.mayBecome(ctx, r, &s); err != nil {
			return nil, err
		}
		if s.Method == room.Lottery && r.Settings.Method != room.Lottery {
			r.Seed = room.NewSeed() // an earlier lottery's seed may have been shown
		}
		r.Settings = s
		return r, nil
	})
	if err != nil {
		return View{}, false, err
	}
	view, err = e.view(ctx, r)
	return view, created, err
}

// beginMaking waits until no other call here creates a room for an owner with a quota, and reads the rooms if they have
// changed. So what conflicts with the creation is other instances alone.
func (e *Engine) beginMaking(ctx context.Context) (done func(), err error) {
	select {
	case e.making <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	done = func() { <-e.making }
	if err := e.catalog.refreshChanged(ctx); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

func (e *Engine) newRoom(ctx context.Context, by room.Owner, name string, s room.Settings) (*Room, error) {
	now, err := e.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	e.clock.observe(now)
	r := &Room{
		Name: name, Owner: by.Name, Settings: s, Epoch: 1,
		Generation: hex.EncodeToString(room.NewSeed()[:8]), Seed: room.NewSeed(),
		CreatedAt: now.UTC().Truncate(time.Millisecond),
	}
	if s.Codes {
		r.CodeKey = room.NewSeed()
	}
	return r, nil
}

// drawMargin is how long before the draw it is too late to postpone it: longer than it
// takes to store the change and until each instance has seen it, so that none shows a
// place, or the seed, by the old time.
const drawMargin = 15 * time.Second

// mayBecome returns why a room may not take new settings, nil if it may: the position
// that a visitor was shown never rises.
func (e *Engine) mayBecome(ctx context.Context, r *Room, s *room.Settings) error {
	status, err := e.store.Status(ctx, r.Name)
	if err != nil {
		return err
	}
	was := &r.Settings
	drawing := !status.Now.Add(drawMargin).Before(was.OpensAt)
	switch {
	case s.Mode != was.Mode && status.Waiting+status.Inside > 0:
		return &room.SettingsError{Field: "mode", Why: fmt.Sprintf("stays %s while anybody waits or is inside: pause the room until it is empty, or make another", was.Mode)}
	case s.Method != was.Method && status.Entered > 0:
		return &room.SettingsError{Field: "method", Why: fmt.Sprintf("stays %s after somebody has come: make another room", was.Method)}
	case was.Method == room.Lottery && drawing && s.OpensAt.After(was.OpensAt):
		return &room.SettingsError{Field: "opens_at", Why: "is the moment of the draw, and may not be moved to later after it, nor in the last 15 s before: make another room"}
	}
	return nil
}

// change changes a room and stores it, and retries after a conflict. F gets a copy, or nil if
// there is no such room. The rooms are read again only if the room is not as known here. A new room
// counts for its owner.
func (e *Engine) change(ctx context.Context, by room.Owner, name string, f func(*Room) (*Room, error)) (*Room, error) {
	attempts := maxAttempts
	if by.Most > 0 {
		attempts = quotaAttempts
	}
	for attempt := range attempts {
		if attempt > 0 && !lifecycle.Sleep(ctx, nil, rand.N(20*time.Millisecond)) {
			return nil, ctx.Err()
		}
		if attempt > 0 {
			if err := e.catalog.refresh(ctx); err != nil {
				return nil, err
			}
		}
		var before *Room
		revision := uint64(0)
		var changed *Room
		if k := e.catalog.cached(name); k != nil {
			before = k.room.Load()
			copied := *before
			changed, revision = &copied, copied.Revision
		}
		r, err := f(changed)
		if errors.Is(err, room.ErrNoRoom) && attempt == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = e.storeRoom(ctx, by, r, before, revision)
		if !errors.Is(err, room.ErrConflict) {
			return r, err
		}
	}
	return nil, fmt.Errorf("room %s is being changed continually: %w", name, room.ErrConflict)
}

// quotaAttempts is how often a room of an owner with a quota is stored: each change of any room by another instance conflicts.
const quotaAttempts = 50

// storeRoom stores a room that was another one before, nil if it is new.
func (e *Engine) storeRoom(ctx context.Context, by room.Owner, r, before *Room, revision uint64) error {
	record, err := json.Marshal(r)
	if err != nil {
		return err
	}
	grows := int64(len(record))
	if before != nil {
		grows -= before.size
	}
	if grows > 0 && e.catalog.size()+grows > room.MaxRoomBytes {
		return room.ErrTooManyRooms
	}
	var unchanged []uint64
	if before == nil && by.Most > 0 {
		has, version := e.catalog.made(by.Name)
		if has >= by.Most {
			return &room.QuotaError{Owner: by.Name, Has: has, Most: by.Most}
		}
		unchanged = []uint64{version}
	}
	r.size = int64(len(record))
	if r.Revision, err = e.store.PutRoom(ctx, r.Name, record, revision, unchanged...); err != nil {
		return err
	}
	k := e.catalog.put(r)
	e.use(k)
	k.wakeUp()
	return nil
}

// changeExisting changes a room that must exist.
func (e *Engine) changeExisting(ctx context.Context, name string, f func(*Room)) (*Room, error) {
	return e.change(ctx, room.Owner{}, name, func(r *Room) (*Room, error) {
		if r == nil {
			return nil, room.ErrNoRoom
		}
		f(r)
		return r, nil
	})
}

// Pause lets nobody in until Resume; visitors may come and wait.
func (e *Engine) Pause(ctx context.Context, name string) (View, error) {
	return e.changeState(ctx, name, func(r *Room) { r.Paused = true })
}

// SoldOut closes a room until Resume, or until the event ends where events repeat, because there
// is nothing left: waiting visitors and newcomers are told so, and those who are inside or called
// stay. It is idempotent.
func (e *Engine) SoldOut(ctx context.Context, name string) (View, error) {
	now, err := e.store.Now(ctx)
	if err != nil {
		return View{}, err
	}
	e.clock.observe(now)
	return e.changeState(ctx, name, func(r *Room) {
		if r.At(now).SoldOutAt.IsZero() {
			r.SoldOutAt = now.UTC().Truncate(time.Millisecond)
		}
	})
}

// Resume ends a Pause, and opens a room that was SoldOut: visitors who have kept their tickets
// in the meantime wait on, for as long as their places are kept.
func (e *Engine) Resume(ctx context.Context, name string) (View, error) {
	return e.changeState(ctx, name, func(r *Room) { r.Paused, r.SoldOutAt = false, time.Time{} })
}

func (e *Engine) changeState(ctx context.Context, name string, change func(*Room)) (View, error) {
	r, err := e.changeExisting(ctx, name, change)
	if err != nil {
		return View{}, err
	}
	return e.view(ctx, r)
}

// DeleteRoom removes a room with all its visitors. It is idempotent.
func (e *Engine) DeleteRoom(ctx context.Context, name string) error {
	k := e.catalog.cached(name)
	if err := e.store.RemoveRoom(ctx, name); err != nil {
		return err
	}
	if k != nil {
		e.catalog.drop(k)
	}
	return nil
}

// Room returns a room, or ErrNoRoom. The counts are current; a change by another instance
// may take Config.RefreshInterval to show.
func (e *Engine) Room(ctx context.Context, name string) (View, error) {
	k, err := e.catalog.get(ctx, name)
	if err != nil {
		return View{}, err
	}
	e.use(k) // so that the next view has an outflow
	return e.view(ctx, k.room.Load())
}

// Rooms returns rooms by name, those after a name, at most so many; more reports whether
// there are others.
func (e *Engine) Rooms(ctx context.Context, after string, limit int) (views []View, more bool, err error) {
	if err := e.catalog.refresh(ctx); err != nil {
		return nil, false, err
	}
	rooms := slices.DeleteFunc(e.catalog.all(), func(k *cachedRoom) bool { return k.name <= after })
	slices.SortFunc(rooms, func(a, b *cachedRoom) int { return strings.Compare(a.name, b.name) })
	more = len(rooms) > limit
	rooms = rooms[:min(limit, len(rooms))]
	views = make([]View, len(rooms))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxExpirations)
	for i, k := range rooms {
		group.Go(func() (err error) {
			views[i], err = e.view(ctx, k.room.Load())
			if errors.Is(err, room.ErrNoRoom) { // removed in the meantime
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(views, func(v View) bool { return v.Room.Name == "" }), more, nil
}

// view returns a room with its counts.
func (e *Engine) view(ctx context.Context, r *Room) (View, error) {
	status, err := e.store.Status(ctx, r.Name)
	if err != nil {
		return View{}, err
	}
	at := r.At(status.Now)
	view := View{Room: *r, Status: status, Phase: PhaseOf(at, &status, status.Now), Event: at.occurrence()}
	if r.Settings.Limit() == room.Auto {
		limit := r.Limit()
		view.Found = &limit
	}
	if k := e.catalog.cached(r.Name); k != nil {
		view.Waits = k.waited.now(status.Now)
		if m := k.measured.Load(); m != nil {
			if rate, ok := m.flow.PerSecond(); ok {
				view.Outflow = &rate
			}
		}
	}
	return view, nil
}

// Settings returns the settings of a room, as by [Room.At], from memory if the room was seen before, also
// while the store is unavailable.
func (e *Engine) Settings(ctx context.Context, name string) (room.Settings, error) {
	k, err := e.catalog.get(ctx, name)
	if err != nil {
		return room.Settings{}, err
	}
	now, ok := e.clock.now()
	if !ok {
		now = time.Now()
	}
	return k.at(now).Settings, nil
}
