package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// steadyStore answers visitors' operations without doing anything, so that only the engine is
// measured.
type steadyStore struct {
	room.Store
	place room.Place
}

func (s *steadyStore) Enter(context.Context, room.Terms, room.Arrival) (room.Place, error) {
	return s.place, nil
}

func (s *steadyStore) Ask(_ context.Context, _ room.Terms, bearers []room.Bearer, _ bool) ([]room.Place, error) {
	places := make([]room.Place, len(bearers))
	for i := range places {
		places[i] = s.place
	}
	return places, nil
}

func benchmarkEngine(b *testing.B, place room.Place) (*engine.Engine, string) {
	b.Helper()
	place.Number, place.Now = 1, time.Now()
	place.Until = place.Now.Add(time.Hour)
	engine, err := engine.New(&steadyStore{storetest.NewMemory(), place}, room.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := engine.PutRoom(ctx, "shop", teller(1)); err != nil {
		b.Fatal(err)
	}
	a, err := engine.Enter(ctx, "shop", room.Visit{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return engine, a.Ticket
}

func BenchmarkEnter(b *testing.B) {
	engine, _ := benchmarkEngine(b, room.Place{State: room.Waiting, Ahead: 1000})
	for b.Loop() {
		if _, err := engine.Enter(ctx, "shop", room.Visit{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAsk(b *testing.B) {
	for name, state := range map[string]room.State{"waiting": room.Waiting, "inside": room.Inside} {
		b.Run(name, func(b *testing.B) {
			engine, ticket := benchmarkEngine(b, room.Place{State: state, Ahead: 1000})
			var text []byte
			for b.Loop() {
				a, err := engine.Ask(ctx, "shop", ticket, nowhere)
				if err != nil {
					b.Fatal(err)
				}
				text = a.AppendJSON(text[:0])
			}
		})
	}
}
