//go:build redis

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// crew runs functions for goroutines in a synctest bubble, whose clock would stand still
// while one of their connections waits for Redis. It is created outside of the bubble.
type crew struct{ free chan *hand }

type hand struct {
	work chan func()
	done chan struct{}
}

func newCrew(t testing.TB) *crew {
	c := &crew{free: make(chan *hand, 32)}
	for range cap(c.free) {
		h := &hand{make(chan func()), make(chan struct{})}
		go func() {
			for f := range h.work {
				f()
				h.done <- struct{}{}
			}
		}()
		c.free <- h
	}
	t.Cleanup(func() {
		for range cap(c.free) {
			close((<-c.free).work)
		}
	})
	return c
}

func (c *crew) do(f func()) {
	h := <-c.free
	h.work <- f
	<-h.done
	c.free <- h
}

// harness opens stores on one server or cluster: each has its own prefix, and the clock of
// the bubble.
type harness struct {
	crew   *crew
	url    string
	shards int
	stores atomic.Int64
	of     map[bulk.Store]Options
}

func (h *harness) open(t testing.TB, options Options) bulk.Store {
	t.Helper()
	s, err := h.tryOpen(options)
	if err != nil {
		t.Fatal(err)
	}
	h.of[s] = options
	return s
}

func (h *harness) tryOpen(options Options) (*Store, error) {
	s, err := h.connect(options)
	if err != nil {
		return nil, err
	}
	if err := s.open(context.Background(), options); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect calls the function connect outside of the bubble.
func (h *harness) connect(options Options) (*Store, error) {
	var s *Store
	var err error
	options.URL, options.CallTimeout = h.url, patient
	h.crew.do(func() { s, err = connect(context.Background(), options) })
	if err != nil {
		return nil, err
	}
	s.now = func() (time.Time, bool) { return time.Now(), true }
	s.exchange = h.crew.do
	s.outside = func(context.Context) context.Context { return context.Background() }
	return s, nil
}

func (h *harness) factory() storetest.Factory {
	reopen := func(t testing.TB, s bulk.Store) bulk.Store {
		options := h.of[s]
		delete(h.of, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return h.open(t, options)
	}
	return storetest.Factory{
		Open: func(t testing.TB, config bulk.Config) bulk.Store {
			return h.open(t, Options{
				Prefix: fmt.Sprintf("test%d:", h.stores.Add(1)), Shards: h.shards, Instance: "instance",
				Bulk: config, Logger: slog.New(slog.DiscardHandler),
			})
		},
		Reopen: reopen, Shards: h.shards, Rounds: 1, LongRounds: 4 / h.shards, // more than 10,000 steps in all
	}
}

// TestConformance runs the suite on three shards of one server, and with SLUICE_LONG on one shard:
// three are then those of TestConformanceOnACluster, which refuses more than a server does.
func TestConformance(t *testing.T) {
	t.Parallel()
	shards := 3
	if os.Getenv("SLUICE_LONG") != "" {
		shards = 1
	}
	h := &harness{crew: newCrew(t), url: redistest.Start(t, redistest.Options{}).URL(), shards: shards, of: map[bulk.Store]Options{}}
	storetest.Run(t, h.factory())
}
