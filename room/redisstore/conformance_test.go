//go:build redis

package redisstore_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/storetest"
)

var quiet = slog.New(slog.DiscardHandler)

// open opens a store, which is closed when the test ends.
func open(t testing.TB, options redisstore.Options) *redisstore.Store {
	t.Helper()
	if options.Logger == nil {
		options.Logger = quiet
	}
	// A healthy server can be slow to answer on a busy machine.
	options.CallTimeout = cmp.Or(options.CallTimeout, 10*time.Second)
	store, err := redisstore.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// harness opens several stores on one server: each has a prefix and a clock of its own.
func harness(server *redistest.Server) storetest.Harness {
	var stores atomic.Int64
	return storetest.Harness{Open: func(t testing.TB) storetest.Opened {
		var offset atomic.Int64
		store := open(t, redisstore.Options{
			URL: server.URL(), Prefix: fmt.Sprintf("test%d:", stores.Add(1)),
			ClockOffset: func() time.Duration { return time.Duration(offset.Load()) },
		})
		return storetest.Opened{Store: store, Advance: func(d time.Duration) { offset.Add(int64(d)) }}
	}}
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, harness(redistest.Start(t, redistest.Options{})))
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	storetest.RunConcurrent(t, harness(redistest.Start(t, redistest.Options{})))
}
