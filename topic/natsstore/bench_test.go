package natsstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/natsstore"
)

func benchLog(b *testing.B) topic.Log {
	s := open(b, b.TempDir(), natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	l, err := s.OpenLog(b.Context(), "bench", []int32{1})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// fill appends entries, up to depth of them in flight.
func fill(b *testing.B, l topic.Log, entries, size, depth int) {
	data := make([]byte, size)
	slots := make(chan struct{}, depth)
	done := func(err error) {
		if err != nil {
			b.Error(err)
		}
		<-slots
	}
	for i := range entries {
		slots <- struct{}{}
		l.Append(topic.Entry{Sequence: uint64(i + 1), Mark: topic.Mark{Base: int64(i)}, Data: data}, done)
	}
	for range depth {
		slots <- struct{}{}
	}
}

// BenchmarkAppend appends with an fsync each.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10, 1 << 20} {
		for _, depth := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dKiB/depth%d", size>>10, depth), func(b *testing.B) {
				l := benchLog(b)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				fill(b, l, b.N, size, depth)
			})
		}
	}
}

// BenchmarkRead reads a log of 256 MiB from the start, again and again.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			l := benchLog(b)
			fill(b, l, 256<<20/size, size, 4)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			from := uint64(1)
			for read := 0; read < b.N; {
				got, err := l.Read(b.Context(), from, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				read += len(got)
				if from = 1; len(got) > 0 {
					from = got[len(got)-1].Sequence + 1
				}
			}
		})
	}
}

// BenchmarkMeta sets one key again and again.
func BenchmarkMeta(b *testing.B) {
	s := open(b, b.TempDir(), natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
	defer s.Close()
	revision := uint64(0)
	var err error
	for b.Loop() {
		if revision, err = s.Meta().Put(b.Context(), "key", []byte("value"), revision); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMetaKeys sets keys again and again, each by a goroutine of its own.
func BenchmarkMetaKeys(b *testing.B) {
	for _, keys := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("%dkeys", keys), func(b *testing.B) {
			s := open(b, b.TempDir(), natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
			defer s.Close()
			value := make([]byte, 200)
			var left atomic.Int64
			left.Store(int64(b.N))
			var working sync.WaitGroup
			b.ResetTimer()
			for i := range keys {
				working.Go(func() {
					key, revision := fmt.Sprintf("offsets/group-%d/orders", i), uint64(0)
					var err error
					for err == nil && left.Add(-1) >= 0 {
						revision, err = s.Meta().Put(b.Context(), key, value, revision)
					}
					if err != nil {
						b.Error(err)
					}
				})
			}
			working.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// BenchmarkMetaList lists the 32 items of a prefix, beside other items.
func BenchmarkMetaList(b *testing.B) {
	for _, others := range []int{0, 1_000, 20_000} {
		b.Run(fmt.Sprintf("%dothers", others), func(b *testing.B) {
			s := open(b, b.TempDir(), natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
			defer s.Close()
			var putting errgroup.Group
			putting.SetLimit(512)
			for i := range others + 32 {
				key := fmt.Sprintf("offsets/group-%d/orders", i)
				if i < 32 {
					key = fmt.Sprintf("slots/%d", i)
				}
				putting.Go(func() error {
					_, err := s.Meta().Put(b.Context(), key, make([]byte, 100), 0)
					return err
				})
			}
			if err := putting.Wait(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if items, err := s.Meta().List(b.Context(), "slots/"); err != nil || len(items) != 32 {
					b.Fatal(len(items), err)
				}
			}
		})
	}
}

// BenchmarkCommit commits offsets through the coordinator of groups: in each
// group some goroutines, with a partition each.
func BenchmarkCommit(b *testing.B) {
	for _, shape := range []struct{ groups, committers int }{{1, 1}, {1, 64}, {64, 1}, {64, 64}} {
		b.Run(fmt.Sprintf("%dgroups/%dcommitters", shape.groups, shape.committers), func(b *testing.B) {
			s := open(b, b.TempDir(), natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
			defer s.Close()
			groups := group.New(s.Meta(), nil, topic.GroupsConfig{}, nil, nil)
			if err := groups.Load(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = groups.Stop(b.Context()) }()
			var left atomic.Int64
			left.Store(int64(b.N))
			var working sync.WaitGroup
			b.ResetTimer()
			for i := range shape.groups * shape.committers {
				working.Go(func() {
					request := group.CommitRequest{
						MemberIdentity: group.MemberIdentity{Group: fmt.Sprint("group-", i%shape.groups), Generation: -1},
						Offsets:        []group.OffsetCommit{{Topic: "orders", Partition: int32(i / shape.groups), Epoch: -1}},
					}
					for left.Add(-1) >= 0 {
						request.Offsets[0].Offset++
						if errs, err := groups.Commit(request).Wait(b.Context()); err != nil || errs[0] != nil {
							b.Error(err, errs)
							return
						}
					}
				})
			}
			working.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkStart opens a store and a broker on it, after an orderly stop. Each
// partition has an entry.
func BenchmarkStart(b *testing.B) {
	const partitions = 500
	for _, topics := range []int{1, partitions} {
		b.Run(fmt.Sprintf("%dtopics/%dpartitions", topics, partitions), func(b *testing.B) {
			dir := b.TempDir()
			s, broker, _, _ := start(b, dir)
			for i := range topics {
				t, err := broker.Create(b.Context(), topic.Spec{Name: fmt.Sprint("topic-", i), Partitions: int32(partitions / topics)}, false)
				if err != nil {
					b.Fatal(err)
				}
				for _, p := range t.Partitions() {
					appendBatch(b, t, p.Number())
				}
			}
			stop(b, s, broker)
			var opening, starting time.Duration
			for b.Loop() {
				s, broker, opened, started := start(b, dir)
				stop(b, s, broker)
				opening, starting = opening+opened, starting+started
			}
			b.ReportMetric(opening.Seconds()/float64(b.N), "s/open")
			b.ReportMetric(starting.Seconds()/float64(b.N), "s/start")
		})
	}
}

// start opens a store and starts a broker, and returns how long each took.
func start(b *testing.B, dir string) (s topic.Store, served *broker.Broker, opened, started time.Duration) {
	b.Helper()
	began := time.Now()
	s = open(b, dir, natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
	opened = time.Since(began)
	served, err := broker.New(s, topic.Config{})
	if err == nil {
		err = served.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	return s, served, opened, time.Since(began) - opened
}

func stop(b *testing.B, s topic.Store, broker *broker.Broker) {
	b.Helper()
	if err := errors.Join(broker.Stop(b.Context()), s.Close()); err != nil {
		b.Fatal(err)
	}
}

func appendBatch(b *testing.B, t *broker.Topic, partition int32) {
	b.Helper()
	batch, err := topic.NewBatch([]topic.Record{{Value: make([]byte, 100)}}, topic.BatchOptions{})
	if err != nil {
		b.Fatal(err)
	}
	appending, err := t.Append(b.Context(), partition, []topic.Batch{batch})
	if err == nil {
		_, _, err = appending.Wait(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
}
