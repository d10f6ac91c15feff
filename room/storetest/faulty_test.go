//go:build !race

package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

// faulty is a Memory that makes a mistake.
type faulty struct {
	*Memory
	fault
}

// fault is a mistake, made before or after an operation.
type fault struct {
	terms  func(m *Memory, move string, t *room.Terms)
	enter  func(a *room.Arrival)
	place  func(move string, p *room.Place)
	due    func(d *room.Due)
	status func(s *room.Status)
	events func(e []room.Event) []room.Event
	rooms  func(r []room.Record)
	ask    func(claim bool) bool
	after  func(m *Memory, move string, t room.Terms)
	reopen func(m *Memory)

	lease func(holder *string, ttl *time.Duration)

	unpublished, anyRevision, anyKeys bool
}

func (f *faulty) before(move string, t room.Terms) room.Terms {
	if f.terms != nil {
		f.terms(f.Memory, move, &t)
	}
	return t
}

func (f *faulty) done(move string, t room.Terms, err error, places ...*room.Place) {
	for _, p := range places {
		if f.place != nil && err == nil {
			f.place(move, p)
		}
	}
	if f.after != nil && err == nil {
		f.after(f.Memory, move, t)
	}
}

func (f *faulty) Enter(ctx context.Context, terms room.Terms, a room.Arrival) (room.Place, error) {
	if f.enter != nil {
		f.enter(&a)
	}
	p, err := f.Memory.Enter(ctx, f.before("Enter", terms), a)
	f.done("Enter", terms, err, &p)
	return p, err
}

func (f *faulty) Ask(ctx context.Context, terms room.Terms, bearers []room.Bearer, claim bool) ([]room.Place, error) {
	if f.ask != nil {
		claim = f.ask(claim)
	}
	places, err := f.Memory.Ask(ctx, f.before("Ask", terms), bearers, claim)
	for i := range places {
		f.done("Ask", terms, err, &places[i])
	}
	return places, err
}

func (f *faulty) Renew(ctx context.Context, terms room.Terms, bearer room.Bearer) (room.Place, error) {
	p, err := f.Memory.Renew(ctx, f.before("Renew", terms), bearer)
	f.done("Renew", terms, err, &p)
	return p, err
}

func (f *faulty) Leave(ctx context.Context, terms room.Terms, bearer room.Bearer, reason room.Reason) (room.Place, error) {
	p, err := f.Memory.Leave(ctx, f.before("Leave", terms), bearer, reason)
	f.done("Leave", terms, err, &p)
	return p, err
}

func (f *faulty) Find(ctx context.Context, terms room.Terms, key room.Key) (int64, error) {
	return f.Memory.Find(ctx, f.before("Find", terms), key)
}

func (f *faulty) Clear(ctx context.Context, terms room.Terms) error {
	err := f.Memory.Clear(ctx, f.before("Clear", terms))
	f.done("Clear", terms, err)
	return err
}

func (f *faulty) Expire(ctx context.Context, terms room.Terms) (room.Due, error) {
	due, err := f.Memory.Expire(ctx, f.before("Expire", terms))
	if f.due != nil {
		f.due(&due)
	}
	f.done("Expire", terms, err)
	return due, err
}

func (f *faulty) Status(ctx context.Context, name string) (room.Status, error) {
	s, err := f.Memory.Status(ctx, name)
	if f.status != nil {
		f.status(&s)
	}
	return s, err
}

func (f *faulty) Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]room.Event, error) {
	events, err := f.Memory.Events(ctx, name, revision, after, limit)
	if f.events != nil {
		events = f.events(events)
	}
	return events, err
}

func (f *faulty) Published(ctx context.Context, name string, revision uint64, upTo int64) error {
	if f.unpublished {
		upTo = 0
	}
	return f.Memory.Published(ctx, name, revision, upTo)
}

func (f *faulty) Rooms(ctx context.Context) ([]room.Record, error) {
	records, err := f.Memory.Rooms(ctx)
	if f.fault.rooms != nil {
		f.fault.rooms(records)
	}
	return records, err
}

func (f *faulty) PutRoom(ctx context.Context, name string, record []byte, revision uint64, version ...uint64) (uint64, error) {
	if f.anyRevision && revision != 0 {
		records, _ := f.Memory.Rooms(ctx)
		if i := slices.IndexFunc(records, func(r room.Record) bool { return r.Name == name }); i >= 0 {
			revision = records[i].Revision
		}
	}
	return f.Memory.PutRoom(ctx, name, record, revision, version...)
}

func (f *faulty) PutKeys(ctx context.Context, keys []room.SigningKey, seen string) error {
	if f.anyKeys {
		stored, _ := f.Memory.Keys(ctx)
		seen = newestKey(stored)
	}
	return f.Memory.PutKeys(ctx, keys, seen)
}

func (f *faulty) Own(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	if f.lease != nil {
		f.lease(&holder, &ttl)
	}
	return f.Memory.Own(ctx, name, holder, ttl)
}
