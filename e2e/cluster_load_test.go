package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

const (
	smokeTopic      = "smoke"
	smokeGroup      = "smokers"
	smokePartitions = 6
	// smokeTick is the interval between the records of a partition.
	smokeTick = 20 * time.Millisecond
)

// smokeLoad is a producer of numbered records and a group that reads them, during faults of the
// nodes.
type smokeLoad struct {
	t        *testing.T
	producer *kgo.Client
	over     context.CancelFunc
	running  sync.WaitGroup
	sent     [smokePartitions]int

	mu sync.Mutex
	// acked counts the acknowledged records of each partition, lastAck is the time of the last one,
	// and worst the longest time between two of a partition.
	acked   [smokePartitions]int
	lastAck [smokePartitions]time.Time
	worst   time.Duration
	// seen are the numbers that the group received, by partition.
	seen [smokePartitions]map[int]bool
}

func startSmokeLoad(t *testing.T, c *nodes) *smokeLoad {
	t.Helper()
	seeds := kgo.SeedBrokers(c.brokers()...)
	l := &smokeLoad{t: t, producer: c.all[0].connect(seeds, kgo.ProducerLinger(0))}
	for i := range l.seen {
		l.seen[i] = map[int]bool{}
	}
	ctx, over := context.WithCancel(t.Context())
	l.over = over
	t.Cleanup(func() {
		over()
		l.running.Wait()
	})
	for range 2 {
		member := c.all[0].connect(seeds, kgo.ConsumerGroup(smokeGroup), kgo.ConsumeTopics(smokeTopic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(200*time.Millisecond))
		l.running.Go(func() {
			l.consume(ctx, member)
			member.Close() // it leaves the group, after its last commit
		})
	}
	l.running.Go(func() { l.produce(ctx) })
	l.awaitAll()
	return l
}

func (l *smokeLoad) produce(ctx context.Context) {
	tick := time.NewTicker(smokeTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for partition := range l.sent {
			number := l.sent[partition]
			l.sent[partition]++
			record := &kgo.Record{Topic: smokeTopic, Partition: int32(partition), Value: []byte(strconv.Itoa(number))}
			l.producer.Produce(context.Background(), record, func(r *kgo.Record, err error) { l.answered(number, r, err) })
		}
	}
}

func (l *smokeLoad) answered(number int, r *kgo.Record, err error) {
	if err != nil {
		l.t.Errorf("record %d of partition %d: %v", number, r.Partition, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, last := time.Now(), &l.lastAck[r.Partition]
	if !last.IsZero() {
		l.worst = max(l.worst, now.Sub(*last))
	}
	l.acked[r.Partition], *last = l.acked[r.Partition]+1, now
}

// consume runs a member of the group.
func (l *smokeLoad) consume(ctx context.Context, member *kgo.Client) {
	for ctx.Err() == nil {
		member.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			number, err := strconv.Atoi(string(r.Value))
			if err != nil {
				l.t.Errorf("partition %d, offset %d: %v", r.Partition, r.Offset, err)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.seen[r.Partition][number] = true
		})
	}
}

// during logs the longest time without an acknowledged record of a partition while happen runs.
func (l *smokeLoad) during(what string, happen func()) {
	l.t.Helper()
	l.mu.Lock()
	l.worst = 0
	l.mu.Unlock()
	happen()
	l.mu.Lock()
	defer l.mu.Unlock()
	worst := l.worst
	for _, last := range l.lastAck { // it may still last
		worst = max(worst, time.Since(last))
	}
	l.t.Logf("%s: no partition went longer than %v without an acknowledgement", what, worst.Round(time.Millisecond))
}

// awaitAll waits until each partition has acknowledged another record.
func (l *smokeLoad) awaitAll() {
	l.t.Helper()
	l.mu.Lock()
	before := l.acked
	l.mu.Unlock()
	until.True(l.t, "every partition acknowledges records", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for partition, count := range l.acked {
			if count == before[partition] {
				return false
			}
		}
		return true
	})
}

// finish ends the load and checks the records that a node returns: each is there once, in order,
// and the group has processed all.
func (l *smokeLoad) finish(by *server) {
	l.t.Helper()
	l.over()
	l.running.Wait()
	within, cancel := context.WithTimeout(l.t.Context(), until.Limit)
	defer cancel()
	if err := l.producer.Flush(within); err != nil {
		l.t.Fatalf("the last records were not acknowledged: %v", err)
	}
	var found [smokePartitions]int
	by.readTopic(smokeTopic, until.Limit, func(r *kgo.Record) {
		if number := string(r.Value); number != strconv.Itoa(found[r.Partition]) {
			l.t.Errorf("partition %d, offset %d: record %s, want %d", r.Partition, r.Offset, number, found[r.Partition])
		}
		found[r.Partition]++
	})
	l.mu.Lock()
	acked := l.acked
	l.mu.Unlock()
	if found != acked || acked != l.sent {
		l.t.Errorf("sent %v, acknowledged %v, and there are %v", l.sent, acked, found)
	}
	l.checkGroup(by, found)
}

// checkGroup lets the group read the rest; then it must have received every record.
func (l *smokeLoad) checkGroup(by *server, there [smokePartitions]int) {
	l.t.Helper()
	ctx, over := context.WithTimeout(l.t.Context(), until.Limit)
	defer over()
	member := by.connect(kgo.ConsumerGroup(smokeGroup), kgo.ConsumeTopics(smokeTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for !l.processed(there) {
		if ctx.Err() != nil {
			l.t.Fatalf("the group has had %s of %v", l.counts(), there)
		}
		soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		l.consume(soon, member)
		cancel()
	}
	committed, err := kadm.NewClient(by.connect()).FetchOffsets(ctx, smokeGroup)
	if err != nil {
		l.t.Fatal(err)
	}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.At > int64(there[o.Partition]) {
			l.t.Errorf("the group has committed %d of partition %d, which ends at %d", o.At, o.Partition, there[o.Partition])
		}
	})
}

// processed reports whether the group has received all records.
func (l *smokeLoad) processed(there [smokePartitions]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5}, func(partition int) bool { return len(l.seen[partition]) < there[partition] })
}

func (l *smokeLoad) counts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var counts []int
	for _, seen := range l.seen {
		counts = append(counts, len(seen))
	}
	return fmt.Sprint(counts)
}
