//go:build redis

package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/storetest"
)

// recovered repeats a call until it succeeds.
func recovered(t *testing.T, call func() error) {
	t.Helper()
	until.Succeeds(t, "the store works again", func() error {
		err := call()
		if err != nil && !errors.Is(err, room.ErrUnavailable) {
			t.Fatalf("error is %v, want ErrUnavailable until it works", err)
		}
		return err
	})
}

// everybody returns the places of 1 to n, without the fields that change with the clock.
func everybody(ctx context.Context, store *redisstore.Store, terms room.Terms, n int64) ([]room.Place, error) {
	numbers := make([]int64, n)
	for i := range numbers {
		numbers[i] = int64(i) + 1
	}
	places, err := store.Ask(ctx, terms, storetest.Bearers(numbers...), false)
	for i := range places {
		places[i].Now = time.Time{}
	}
	return places, err
}

func TestEverybodyHasTheSamePlaceAfterARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Persist: redistest.Always})
	store, terms := shop(t, server)
	terms.Sliding, terms.Events = false, 10_000
	terms.Claim, terms.Abandon, terms.Away = time.Hour, time.Hour, time.Hour // longer than any restart takes
	fill(t, store, terms, 500, true)
	terms.Capacity = 10
	if _, err := store.Expire(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Ask(t.Context(), terms, storetest.Bearers(1, 2, 3), true); err != nil {
		t.Fatal(err)
	}
	before, err := everybody(t.Context(), store, terms, 500)
	if err != nil {
		t.Fatal(err)
	}
	history, err := store.Events(t.Context(), "shop", 0, 0, 10_000)
	if err != nil || len(history) != 510 {
		t.Fatalf("%d events, %v", len(history), err)
	}

	server.Kill()
	if _, err := store.Ask(t.Context(), terms, storetest.Bearers(1), true); !errors.Is(err, room.ErrUnavailable) {
		t.Errorf("error is %v while the server is down, want ErrUnavailable", err)
	}
	server.Restart()
	var after []room.Place
	recovered(t, func() (err error) {
		after, err = everybody(t.Context(), store, terms, 500)
		return err
	})
	if !slices.Equal(before, after) {
		t.Error("after a restart the places are others")
	}
	var again []room.Event
	recovered(t, func() (err error) { // over a connection that may be another one
		again, err = store.Events(t.Context(), "shop", 0, 0, 10_000)
		return err
	})
	if !slices.Equal(history, again) {
		t.Error("after a restart the events are others")
	}
}

func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	store, terms := shop(t, server)
	fill(t, store, terms, 10, false)
	server.Pause()
	calls := map[string]func() error{
		"Ask":    func() error { _, err := store.Ask(t.Context(), terms, storetest.Bearers(1), true); return err },
		"Enter":  func() error { _, err := store.Enter(t.Context(), terms, room.Arrival{}); return err },
		"Status": func() error { _, err := store.Status(t.Context(), "shop"); return err },
		"Rooms":  func() error { _, err := store.Rooms(t.Context()); return err },
		"Open": func() error {
			_, err := redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Logger: quiet})
			return err
		},
	}
	var group sync.WaitGroup
	for name, call := range calls {
		group.Go(func() {
			if err := call(); !errors.Is(err, room.ErrUnavailable) {
				t.Errorf("%s: error is %v while the server hangs, want ErrUnavailable", name, err)
			}
		})
	}
	group.Wait()
	server.Continue()
	recovered(t, func() error {
		places, err := store.Ask(t.Context(), terms, storetest.Bearers(10), true)
		if err == nil && (places[0].State != room.Waiting || places[0].Ahead != 9) {
			t.Errorf("the place is %+v", places[0])
		}
		return err
	})
}

func TestPeopleAreServedWhenTheMemoryIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory", "4mb"}})
	store, terms := shop(t, server)
	entered, err := int64(0), error(nil)
	for err == nil {
		if _, err = store.Enter(t.Context(), terms, room.Arrival{}); err == nil {
			entered++
		}
	}
	if !errors.Is(err, room.ErrFull) {
		t.Fatalf("after %d visitors: %v, want ErrFull", entered, err)
	}
	terms.Capacity = 5
	if _, err := store.Expire(t.Context(), terms); err != nil {
		t.Errorf("Expire: %v", err)
	}
	if places, err := store.Ask(t.Context(), terms, storetest.Bearers(1, entered), true); err != nil || places[0].State != room.Inside {
		t.Errorf("Ask: %+v, %v", places, err)
	}
	if _, err := store.Leave(t.Context(), terms, room.Bearer{Number: 1}, room.Left); err != nil {
		t.Errorf("Leave: %v", err)
	}
	if err := store.RemoveRoom(t.Context(), "shop"); err != nil {
		t.Errorf("RemoveRoom: %v", err)
	}
}

func TestAReplicaIsUnavailable(t *testing.T) {
	t.Parallel()
	master, server := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	store, terms := shop(t, server)
	_, port := master.HostPort()
	server.Cli("REPLICAOF", "127.0.0.1", port)
	if _, err := store.Enter(t.Context(), terms, room.Arrival{}); !errors.Is(err, room.ErrUnavailable) {
		t.Errorf("error is %v from a replica, want ErrUnavailable", err)
	}
}

// All keys of a room are in one slot: a cluster refuses scripts that touch more.
func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
	server.Cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	store, err := redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Logger: quiet})
	for errors.Is(err, room.ErrUnavailable) { // until the node sees the cluster complete
		store, err = redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Logger: quiet})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, harness(server))
}
