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
)

// Delayed records wait while the server is killed with SIGKILL, before the first
// of them is due and again while they come: each comes once, none before it is
// due, those that are due first first; and those that were canceled, before a kill
// or after it, never come.
func TestTopicDelayedOverKills(t *testing.T) {
	t.Parallel()
	count, lead, spread := 10_000, 4*time.Second, 4*time.Second
	if long() {
		count, lead, spread = 100_000, 20*time.Second, 20*time.Second
	}
	s := newServer(t)
	s.start()
	s.newTopic("reminders", 4, "sluice.delay.enable", "true")
	r := &reminders{server: s, first: time.Now().Add(lead).Truncate(time.Millisecond), spread: spread, count: count}
	consumer := s.connect(kgo.ConsumeTopics("reminders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	stop := inBackground(func(ctx context.Context) { r.consume(ctx, consumer) })
	t.Cleanup(stop)
	r.produce()
	r.cancel(0, 50)
	waiting := time.Until(r.first)
	t.Logf("%d records are acknowledged %v before the first is due", count, waiting)
	s.kill()
	s.start()
	r.cancel(50, 100)
	if got := r.list(); len(got) != 1000 {
		t.Errorf("%d records wait, want the 1000 of a full list", len(got))
	}
	select {
	case <-time.After(time.Until(r.first.Add(spread / 2))):
	case <-t.Context().Done():
	}
	s.kill()
	s.start()
	eventually(t, lead+spread+time.Minute, "all records come", func() bool { return r.came() >= count-100 })
	eventually(t, time.Minute, "none waits", func() bool { return len(r.list()) == 0 })
	r.cancelAgain()
	pause(t.Context(), 500*time.Millisecond) // for what must not come
	stop()
	r.check(waiting > 0)
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

// reminder is one that has come.
type reminder struct {
	number    int
	partition int32
	at        time.Time
	timestamp time.Time
}

// due returns when a record is due: those that are canceled last.
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

// cancel cancels the records of these numbers. Right after a start they may be
// being read.
func (r *reminders) cancel(from, to int) {
	t := r.server.t
	t.Helper()
	for number := from; number < to; number++ {
		var got answer
		eventually(t, 30*time.Second, "a record is canceled", func() bool {
			var err error
			got, err = r.server.do(http.MethodDelete, fmt.Sprint("/v1/topics/reminders/delayed/reminder-", number), "", nil)
			return err == nil && got.status != http.StatusServiceUnavailable
		})
		if got.status != http.StatusNoContent {
			t.Fatalf("cancel reminder %d: %d %s", number, got.status, got.body)
		}
	}
}

// cancelAgain fails if any record that was canceled can be.
func (r *reminders) cancelAgain() {
	for number := range 100 {
		got, err := r.server.do(http.MethodDelete, fmt.Sprint("/v1/topics/reminders/delayed/reminder-", number), "", nil)
		if err != nil || got.status != http.StatusNotFound {
			r.server.t.Errorf("cancel reminder %d again: %d %s %v, want 404", number, got.status, got.body, err)
		}
	}
}

// list returns the ids of at most 1,000 records that wait; while they cannot be
// listed, one that is none of theirs.
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

// check looks at all that came. ordered says that all were there before the first
// was due.
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
	if median > 10*time.Second {
		t.Errorf("the median record came %v late", median)
	}
}
