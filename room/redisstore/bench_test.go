//go:build redis

package redisstore_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
)

// shop returns a store with a room, and terms for it that call nobody.
func shop(t testing.TB, server *redistest.Server) (*redisstore.Store, room.Terms) {
	t.Helper()
	store := open(t, redisstore.Options{URL: server.URL()})
	terms := room.Terms{
		Room: "shop", MaxWaiting: 10_000_000, TTL: 10 * time.Minute, Sliding: true, Claim: 10 * time.Second,
		Abandon: 2 * time.Minute, Grace: 24 * time.Hour, Away: 10 * time.Second, Events: 0,
	}
	var err error
	if terms.Revision, err = store.PutRoom(t.Context(), terms.Room, []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	return store, terms
}

// fingerprint is that of all visitors, one of the half that takes most memory.
const fingerprint = 0xffff

// visitor returns one of them.
func visitor(n int64) room.Bearer { return room.Bearer{Number: n, Fingerprint: fingerprint} }

// fill lets visitors enter from many goroutines; with keys, each has one.
func fill(t testing.TB, store *redisstore.Store, terms room.Terms, visitors int, keyed bool) {
	t.Helper()
	const goroutines = 64
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for range (visitors + g) / goroutines {
				arrival := room.Arrival{Fingerprint: fingerprint}
				for i := range arrival.Key {
					if keyed {
						arrival.Key[i] = byte(random.Uint32())
					}
				}
				if _, err := store.Enter(context.Background(), terms, arrival); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// info returns a number of INFO.
func info(t testing.TB, server *redistest.Server, name string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(server.Info(name), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// benchmark runs an operation from many goroutines on a queue of 100,000, or 1,000,000 with
// SLUICE_LONG, and also reports Redis's processor time for each.
func benchmark(b *testing.B, prepare func(*redisstore.Store, *room.Terms), move func(*redisstore.Store, room.Terms, int64) error) {
	waiting := 100_000
	if os.Getenv("SLUICE_LONG") != "" {
		waiting = 1_000_000
	}
	server := redistest.Start(b, redistest.Options{})
	store, terms := shop(b, server)
	began := time.Now()
	fill(b, store, terms, waiting, false)
	b.Logf("%d visitors entered in %v; Redis uses %.0f MiB", waiting, time.Since(began), info(b, server, "used_memory")/(1<<20))
	if prepare != nil {
		prepare(store, &terms)
	}
	busy := info(b, server, "used_cpu_user_main_thread") + info(b, server, "used_cpu_sys_main_thread")
	b.SetParallelism(64)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := move(store, terms, 1+rand.Int64N(int64(waiting))); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	busy = info(b, server, "used_cpu_user_main_thread") + info(b, server, "used_cpu_sys_main_thread") - busy
	b.ReportMetric(busy*1e6/float64(b.N), "redis-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func BenchmarkAskWaiting(b *testing.B) {
	benchmark(b, nil, func(s *redisstore.Store, terms room.Terms, n int64) error {
		_, err := s.Ask(context.Background(), terms, []room.Bearer{visitor(n)}, true)
		return err
	})
}

func BenchmarkAskHundredWaiting(b *testing.B) {
	benchmark(b, nil, func(s *redisstore.Store, terms room.Terms, n int64) error {
		bearers := make([]room.Bearer, 100)
		for i := range bearers {
			bearers[i] = visitor(n + int64(i))
		}
		_, err := s.Ask(context.Background(), terms, bearers, false)
		return err
	})
}

func BenchmarkAskInside(b *testing.B) {
	prepare := func(s *redisstore.Store, terms *room.Terms) {
		terms.Capacity = 1_000
		if _, err := s.Expire(context.Background(), *terms); err != nil {
			b.Fatal(err)
		}
		for n := range int64(1_000) {
			if _, err := s.Ask(context.Background(), *terms, []room.Bearer{visitor(n + 1)}, true); err != nil {
				b.Fatal(err)
			}
		}
	}
	benchmark(b, prepare, func(s *redisstore.Store, terms room.Terms, n int64) error {
		_, err := s.Ask(context.Background(), terms, []room.Bearer{visitor(1 + n%1_000)}, true)
		return err
	})
}

func BenchmarkEnter(b *testing.B) {
	benchmark(b, nil, func(s *redisstore.Store, terms room.Terms, _ int64) error {
		_, err := s.Enter(context.Background(), terms, room.Arrival{Fingerprint: fingerprint})
		return err
	})
}

func BenchmarkEnterAndLeave(b *testing.B) {
	benchmark(b, nil, func(s *redisstore.Store, terms room.Terms, _ int64) error {
		p, err := s.Enter(context.Background(), terms, room.Arrival{Fingerprint: fingerprint})
		if err == nil {
			_, err = s.Leave(context.Background(), terms, visitor(p.Number), room.Left)
		}
		return err
	})
}
