//go:build redis

package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room"
)

// Visitors who enter in one script get what they would one after the other: of random keys that
// come back, draws, lanes and claims, with slots for some and a line that gets full.
func TestEnteringTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	store, err := Open(t.Context(), Options{URL: server.URL(), Logger: slog.New(slog.DiscardHandler), CallTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	refused, inside := 0, 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(2, seed))
		terms := room.Terms{
			Capacity: random.Int64N(8), MaxWaiting: 5 + random.Int64N(30), TTL: time.Hour, Claim: time.Hour, Abandon: time.Hour, Away: time.Hour, Events: 30,
			Shares: [room.MaxLanes]int64{5, 3, 2},
		}
		if seed%3 == 0 {
			terms.DrawUntil = time.Now().Add(time.Hour)
		}
		together, alone := terms, terms
		together.Room, alone.Room = fmt.Sprint("together-", seed), fmt.Sprint("alone-", seed)
		for _, of := range []*room.Terms{&together, &alone} {
			if of.Revision, err = store.PutRoom(t.Context(), of.Room, []byte("{}"), 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			arrivals := make([]room.Arrival, 1+random.IntN(20))
			for i := range arrivals {
				arrivals[i] = room.Arrival{Draw: random.Int64N(1 << 52), Provisional: random.IntN(2) == 0, Fingerprint: 7, Lane: random.IntN(1 + int(seed%2)*3)}
				if random.IntN(2) == 0 {
					arrivals[i].Key = room.Key{1, byte(random.IntN(20))}
				}
			}
			all, err := store.enterAll(t.Context(), together, arrivals)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range all {
				one, err := store.enterAll(t.Context(), alone, arrivals[i:i+1])
				if err != nil {
					t.Fatal(err)
				}
				if want := one[0]; !sameEntered(got, want) {
					t.Fatalf("seed %d, arrival %d of %+v: %+v %v, and one after the other %+v %v", seed, i, arrivals, got.place, got.err, want.place, want.err)
				}
				if got.err != nil {
					refused++
				} else if got.place.State == room.Inside {
					inside++
				}
			}
		}
		if a, b := statusWithoutTime(t, store, together.Room), statusWithoutTime(t, store, alone.Room); a != b {
			t.Fatalf("seed %d: the room has %+v, and one after the other %+v", seed, a, b)
		}
	}
	if refused == 0 || inside == 0 {
		t.Errorf("%d were refused and %d came in, want some of both", refused, inside)
	}
}

// sameEntered compares results but for their times.
func sameEntered(a, b entered) bool {
	for _, e := range []*entered{&a, &b} {
		e.place.Now, e.place.Since, e.place.Until = time.Time{}, time.Time{}, time.Time{}
	}
	return a.place == b.place && errors.Is(a.err, b.err)
}

func statusWithoutTime(t *testing.T, store *Store, name string) room.Status {
	t.Helper()
	status, err := store.Status(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	status.Now = time.Time{}
	return status
}
