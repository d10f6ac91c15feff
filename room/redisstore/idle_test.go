//go:build redis && !race

package redisstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/redisstore"
)

// commands returns how many commands a server has run, those of scripts included, without those of
// the connections and of this test.
func commands(server *redistest.Server) (all int64) {
	for line := range strings.Lines(server.Cli("INFO", "commandstats")) {
		name, rest, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !found || strings.HasPrefix(name, "client") || strings.HasPrefix(name, "script") || name == "info" || name == "hello" || name == "ping" || name == "config|get" {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseInt(digits, 10, 64)
		all += n
	}
	return all
}

// Thousands of rooms in which nobody is, with SLUICE_LONG as many as there may be, cost a server next to nothing,
// with ten instances: below 200 commands a second, those within scripts included. An instance reads the version of
// the rooms every second, so that ten such reads are a second.
func TestIdleRoomsCostNextToNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	const instances = 10
	rooms := 2_000
	if os.Getenv("SLUICE_LONG") != "" {
		rooms = room.MaxRooms
	}
	var reads atomic.Int64
	engines := make([]*engine.Engine, instances)
	for i := range engines {
		store := &versionCounter{Store: open(t, redisstore.Options{URL: server.URL()}), reads: &reads}
		engine, err := engine.New(store, room.Config{}, engine.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		engines[i] = engine
		if i > 0 {
			continue
		}
		// The first room is made by the engine, the others as copies.
		if _, _, err := engine.PutRoom(t.Context(), "room-0", room.Settings{Mode: room.Teller, Capacity: 1}); err != nil {
			t.Fatal(err)
		}
		fillRooms(t, open(t, redisstore.Options{URL: server.URL()}), rooms)
	}
	for _, engine := range engines {
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := engine.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
	}
	seconds := func() int64 { return reads.Load() / instances }
	awaitSeconds := func(most int64) {
		until.True(t, "the instances have read the rooms' version", func() bool { return seconds() >= most })
	}
	awaitSeconds(seconds() + 2)
	began, before, start := seconds(), commands(server), time.Now()
	awaitSeconds(began + 5)
	passed, ran := seconds()-began, commands(server)-before
	t.Logf("%d commands in %v, in which each instance read the version %d times", ran, time.Since(start), passed)
	if ran > 200*passed {
		t.Errorf("%d commands a second, want 200 at most", ran/passed)
	}
}

// versionCounter counts the reads of the rooms' version.
type versionCounter struct {
	room.Store
	reads *atomic.Int64
}

func (c *versionCounter) RoomsVersion(ctx context.Context) (uint64, error) {
	c.reads.Add(1)
	return c.Store.RoomsVersion(ctx)
}

// fillRooms makes rooms like the first, until there are count.
func fillRooms(t *testing.T, store *redisstore.Store, count int) {
	t.Helper()
	records, err := store.Rooms(t.Context())
	if err != nil || len(records) != 1 || !json.Valid(records[0].Data) {
		t.Fatalf("Rooms() = %v, %v", records, err)
	}
	const workers = 32
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := 1 + worker; i < count; i += workers {
				if _, err := store.PutRoom(t.Context(), fmt.Sprint("room-", i), records[0].Data, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
