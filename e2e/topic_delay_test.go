package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Delayed records wait while the server is killed with SIGKILL, before the first of them is due and
// again while they appear: each appears once, none before it is due, in the order of due times;
// records that were canceled, before a kill or after it, never appear.
func TestTopicDelayedOverKills(t *testing.T) {
	t.Parallel()
	count, lead, spread := 10_000, 4*time.Second, 4*time.Second
	if long() {
		count, lead, spread = 100_000, 20*time.Second, 20*time.Second
	}
	for !delayedOverKills(t, count, lead, spread) {
		t.Logf("a delay of %v is over before the records are canceled: twice as long", lead)
		lead, spread = 2*lead, 2*spread
	}
}

// delayedOverKills reports whether the machine was fast enough for the delay: whether the
// records to cancel still waited when they were canceled.
func delayedOverKills(t *testing.T, count int, lead, spread time.Duration) (conclusive bool) {
	t.Helper()
	s := newServer(t)
	s.start()
	s.newTopic("reminders", 4, "sluice.delay.enable", "true")
	r := &reminders{server: s, first: time.Now().Add(lead).Truncate(time.Millisecond), spread: spread, count: count}
	consumer := s.connect(kgo.ConsumeTopics("reminders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	stop := inBackground(func(ctx context.Context) { r.consume(ctx, consumer) })
	t.Cleanup(stop)
	r.produce()
	if !r.cancel(0, 50) {
		return false
	}
	waiting := time.Until(r.first)
	t.Logf("%d records are acknowledged %v before the first is due", count, waiting)
	s.kill()
	s.start()
	if !r.cancel(50, 100) {
		return false
	}
	full := false
	until.True(t, "the 1,000 records of a full list wait", func() bool {
		full = len(r.list()) == 1000
		return full || time.Now().After(r.first)
	})
	if !full { // so many have come that a list is not full any more
		return false
	}
	select {
	case <-time.After(time.Until(r.first.Add(spread / 2))):
	case <-t.Context().Done():
	}
	s.kill()
	s.start()
	until.True(t, "all records come", func() bool { return r.came() >= count-100 })
	until.True(t, "none waits", func() bool { return len(r.list()) == 0 })
	r.cancelAgain()
	pause(t.Context(), 500*time.Millisecond) // for records that must not come
	stop()
	r.check(waiting > 0)
	return true
}

// reminders are delayed records, numbered from 0; those before 100 are canceled.
type reminders struct {
	server *server
	first  time.Time // when the first is due
	spread time.Duration
	count  int

	mu  sync.Mutex
	got []reminder
}

// reminder is a record that has appeared.
type reminder struct {
	number    int
	partition int32
	at        time.Time
	timestamp time.Time
}

// due returns when a record is due; canceled ones are due last.
func (r *reminders) due(number int) time.Time {
	if number < 100 {
		return r.first.Add(r.spread + time.Second)
	}
	mixed := rand.New(rand.NewPCG(uint64(number), 3)).Int64N(r.spread.Milliseconds())
	return r.first.Add(time.Duration(mixed) * time.Millisecond)
}

func (r *reminders) produce() {
	t := r.server.t
	producer := r.server.connect(kgo.ProducerLinger(5 * time.Millisecond))
	for number := range r.count {
		due := strconv.FormatInt(r.due(number).UnixMilli(), 10)
		if number%2 == 0 {
			due = r.due(number).UTC().Format(time.RFC3339Nano)
		}
		record := &kgo.Record{
			Topic: "reminders", Partition: int32(number % 4), Value: fmt.Append(nil, number),
			Headers: []kgo.RecordHeader{
				{Key: "sluice-deliver-at", Value: []byte(due)},
				{Key: "sluice-id", Value: fmt.Append(nil, "reminder-", number)},
			},
		}
		producer.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("reminder %d: %v", number, err)
			}
		})
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cancel cancels the records of these numbers, and reports whether they still waited: those
// that are due have appeared and are not found.
func (r *reminders) cancel(from, to int) (waited bool) {
	r.server.t.Helper()
	for number := from; number < to; number++ {
		got := r.cancelOne(number)
		if got.status == http.StatusNotFound && time.Now().After(r.due(number)) {
			return false
		}
		if got.status != http.StatusNoContent {
			r.server.t.Fatalf("cancel reminder %d: %d %s", number, got.status, got.body)
		}
	}
	return true
}

// cancelOne cancels a record. Right after a start the server is still reading the records, and
// answers so.
func (r *reminders) cancelOne(number int) (got answer) {
	r.server.t.Helper()
	until.True(r.server.t, "a request to cancel is answered", func() bool {
		var err error
		got, err = r.server.do(http.MethodDelete, fmt.Sprint("/v1/topics/reminders/delayed/reminder-", number), "", nil)
		return err == nil && got.status != http.StatusServiceUnavailable
	})
	return got
}

// cancelAgain fails if a canceled record can be canceled again.
func (r *reminders) cancelAgain() {
	for number := range 100 {
		if got := r.cancelOne(number); got.status != http.StatusNotFound {
			r.server.t.Errorf("cancel reminder %d again: %d %s, want 404", number, got.status, got.body)
		}
	}
}

// list returns the ids of at most 1,000 waiting records; while they cannot be listed, it returns an
// id that none of them has.
func (r *reminders) list() (ids []string) {
	a, err := r.server.do(http.MethodGet, "/v1/topics/reminders/delayed?limit=1000", "", nil)
	var list struct {
		Delayed []struct {
			ID string `json:"id"`
		} `json:"delayed"`
	}
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &list) != nil {
		return []string{fmt.Sprintf("%d %s %v", a.status, a.body, err)}
	}
	for _, d := range list.Delayed {
		ids = append(ids, d.ID)
	}
	return ids
}

func (r *reminders) consume(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		r.mu.Lock()
		fetches.EachRecord(func(record *kgo.Record) {
			number, err := strconv.Atoi(string(record.Value))
			if err != nil {
				r.server.t.Errorf("offset %d of partition %d: %v", record.Offset, record.Partition, err)
				return
			}
			r.got = append(r.got, reminder{number, record.Partition, now, record.Timestamp})
		})
		r.mu.Unlock()
	}
}

func (r *reminders) came() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// check verifies all records that appeared. ordered means that all were stored before the first was
// due.
func (r *reminders) check(ordered bool) {
	t := r.server.t
	t.Helper()
	times := make([]int, r.count)
	last := map[int32]time.Time{}
	var lateness []time.Duration
	for _, got := range r.got {
		due := r.due(got.number)
		times[got.number]++
		lateness = append(lateness, got.at.Sub(due))
		if got.at.Before(due) {
			t.Errorf("reminder %d came %v before it was due", got.number, due.Sub(got.at))
		}
		if !got.timestamp.Equal(due) || int(got.partition) != got.number%4 {
			t.Errorf("reminder %d came in partition %d with timestamp %v, and was due at %v", got.number, got.partition, got.timestamp, due)
		}
		if ordered && due.Before(last[got.partition]) {
			t.Errorf("reminder %d came after one that was due %v later", got.number, last[got.partition].Sub(due))
		}
		last[got.partition] = due
	}
	for number, n := range times {
		want := 1
		if number < 100 {
			want = 0
		}
		if n != want {
			t.Errorf("reminder %d came %d times, want %d", number, n, want)
		}
	}
	slices.Sort(lateness)
	median := lateness[len(lateness)/2]
	t.Logf("lateness: median %v, 90 %% %v, most %v", median, lateness[len(lateness)*9/10], lateness[len(lateness)-1])
}
