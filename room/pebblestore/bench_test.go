package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/storetest"
)

// million is how many visitors wait.
const million = 1_000_000

func openBench(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := Open(dir, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func closeBench(b *testing.B, s *Store) {
	b.Helper()
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}

func benchTerms(b *testing.B, s *Store) room.Terms {
	b.Helper()
	revision, err := s.PutRoom(context.Background(), "shop", []byte("{}"), 0)
	if err != nil {
		b.Fatal(err)
	}
	return room.Terms{
		Room: "shop", Revision: revision, MaxWaiting: 10 * million, TTL: time.Hour, Sliding: true, Claim: time.Minute,
		Abandon: time.Hour, Grace: time.Hour, Away: time.Hour,
	}
}

func benchKey(n int64) (key room.Key) {
	binary.BigEndian.PutUint64(key[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(key[8:], uint64(n))
	return key
}

// fill lets a million visitors wait, optionally with keys, without waiting for each fsync.
func fill(b *testing.B, s *Store, terms room.Terms, keys bool) {
	b.Helper()
	h := s.roomState("shop")
	for n := int64(1); n <= million; {
		m := &operation{s: s, rs: h, terms: terms, now: s.clock.now()}
		s.running.Add(1)
		h.mu.Lock()
		for range 1000 {
			arrival := room.Arrival{Draw: int64(uint64(n) * 0x9e3779b97f4a7c15 >> 12)}
			if keys {
				arrival.Key = benchKey(n)
			}
			m.arrive(arrival)
			n++
		}
		if err := m.commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// reportMemory reports the memory of the process.
func reportMemory(b *testing.B) {
	b.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/(1<<20), "MiB-heap")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "VmRSS:" || fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			b.ReportMetric(kib/1024, "MiB-"+strings.TrimSuffix(fields[0], ":"))
		}
	}
}

// BenchmarkEnter measures joins, each durable before it returns, from many goroutines.
func BenchmarkEnter(b *testing.B) {
	for _, goroutines := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			s := openBench(b, b.TempDir())
			defer closeBench(b, s)
			terms := benchTerms(b, s)
			var next atomic.Int64
			var wait sync.WaitGroup
			b.ResetTimer()
			for range goroutines {
				wait.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := s.Enter(context.Background(), terms, room.Arrival{Key: benchKey(n)}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "joins/s")
		})
	}
}

// BenchmarkVisit measures a whole visit: enter behind two who wait, be called when another leaves,
// claim, and leave. Each step is durable before it returns.
func BenchmarkVisit(b *testing.B) {
	s := openBench(b, b.TempDir())
	defer closeBench(b, s)
	terms := benchTerms(b, s)
	terms.Capacity = 64
	terms.Events = million
	ctx := context.Background()
	var next atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for range 128 {
		wait.Go(func() {
			for next.Add(1) <= int64(b.N) {
				place, err := s.Enter(ctx, terms, room.Arrival{})
				for err == nil && place.State != room.Inside {
					var places []room.Place
					if places, err = s.Ask(ctx, terms, storetest.Bearers(place.Number), true); err == nil {
						place = places[0]
					}
					runtime.Gosched()
				}
				if err == nil {
					_, err = s.Leave(ctx, terms, room.Bearer{Number: place.Number}, room.Left)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "visits/s")
}

// BenchmarkMillion measures operations on a room with a million waiting visitors.
func BenchmarkMillion(b *testing.B) {
	for _, kind := range []string{"plain", "keys", "keys and draws"} {
		b.Run(kind, func(b *testing.B) {
			dir := b.TempDir()
			s := openBench(b, dir)
			terms := benchTerms(b, s)
			if strings.Contains(kind, "draws") {
				terms.DrawUntil = time.Now().Add(time.Hour)
			}
			fill(b, s, terms, kind != "plain")
			b.Run("memory", func(b *testing.B) {
				for b.Loop() {
				}
				reportMemory(b)
			})
			benchAsk(b, s, terms)
			closeBench(b, s)
			b.Run("open", func(b *testing.B) {
				for b.Loop() {
					s := openBench(b, dir)
					if n := s.roomState("shop").waiting; n != million {
						b.Fatalf("%d wait", n)
					}
					closeBench(b, s)
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/open")
			})
		})
	}
}

func benchAsk(b *testing.B, s *Store, terms room.Terms) {
	b.Helper()
	for _, at := range []int{1, 100} {
		b.Run(fmt.Sprintf("look-ups/%d at once", at), func(b *testing.B) {
			var seed atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				numbers := make([]int64, at)
				n := seed.Add(1) * 7919
				for pb.Next() {
					for i := range numbers {
						n = (n*48271 + 11) % million
						numbers[i] = n + 1
					}
					if _, err := s.Ask(context.Background(), terms, storetest.Bearers(numbers...), true); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N*at)/b.Elapsed().Seconds(), "look-ups/s")
		})
	}
	b.Run("expire", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Expire(context.Background(), terms); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDisk measures the disk space of a million waiting visitors.
func BenchmarkDisk(b *testing.B) {
	dir := b.TempDir()
	s := openBench(b, dir)
	defer closeBench(b, s)
	terms := benchTerms(b, s)
	for b.Loop() {
		fill(b, s, terms, false)
	}
	if err := s.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false); err != nil {
		b.Fatal(err)
	}
	metrics := s.db.Metrics()
	b.ReportMetric(float64(metrics.DiskSpaceUsage())/float64(s.roomState("shop").waiting), "B/visitor")
}
