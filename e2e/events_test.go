package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readTopic returns all records of a topic, by partition and offset.
func readTopic(t *testing.T, brokers, name string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	ends.Each(func(end kadm.ListedOffset) { want += end.Offset })
	var records []*kgo.Record
	for int64(len(records)) < want {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(fetches.Err0(), ctx.Err()); err != nil {
			t.Fatalf("%d of %d records of %s: %v", len(records), want, name, err)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// The server is killed again and again while actions run, half of which ask for
// events of their jobs. The topic has each event once in the end, those of an
// action in order.
func TestEventsSurviveKills(t *testing.T) {
	kills, perAction := 6, 800
	if long() {
		kills, perAction = 30, 8000
	}
	s := newServer(t, "--topic-partitions", "3", "--bulk-requests-per-second", "3000")
	s.start()
	r := &killRun{server: s, target: newRecorder(t), jobs: perAction, over: make(chan struct{})}
	for n := range 6 {
		id := fmt.Sprint("action-", n)
		r.create(id, n%2 == 0)
	}
	for range kills {
		<-time.After(50*time.Millisecond + rand.N(400*time.Millisecond))
		s.kill()
		s.start()
	}
	r.uploads.Wait()
	eventually(t, 5*time.Minute, "all actions complete", r.completed)
	close(r.over)
	eventually(t, time.Minute, "all events are published", func() bool {
		a, err := s.do("GET", "/metrics", "", nil)
		return err == nil && strings.Contains(string(a.body), "bulk_action_outbox_size 0\n")
	})
	h := hearEvents(t, s.kafka)
	for n, id := range r.ids {
		if want := []string{"created", "dispatched", "running", "aggregating", "completed"}; !slices.Equal(h.states[id], want) {
			t.Errorf("%s was %v, want %v", id, h.states[id], want)
		}
		for job := range perAction {
			if name := fmt.Sprint(id, "-", job); n%2 == 0 && h.jobs[name] != 1 {
				t.Errorf("job %s has %d events", name, h.jobs[name])
			}
		}
	}
	if want := perAction * 3; len(h.jobs) != want {
		t.Errorf("%d jobs have events, want %d", len(h.jobs), want)
	}
}

// heard is what the topic of events tells: the states of actions in their order,
// and how often each job is done.
type heard struct {
	states map[string][]string
	jobs   map[string]int
}

// hearEvents reads the topic of events. None may be there twice, and none of a job
// when its action does not run.
func hearEvents(t *testing.T, brokers string) *heard {
	t.Helper()
	h, ids := &heard{states: map[string][]string{}, jobs: map[string]int{}}, map[string]bool{}
	for _, record := range readTopic(t, brokers, "sluice.bulk.events") {
		var e struct {
			ID, Type, Subject, PartitionKey string
		}
		if err := json.Unmarshal(record.Value, &e); err != nil {
			t.Fatal(err)
		}
		if ids[e.ID] {
			t.Errorf("event %s is there twice", e.ID)
		}
		ids[e.ID] = true
		switch kind, what, _ := strings.Cut(strings.TrimPrefix(e.Type, "io.sluice.bulk."), "."); kind {
		case "action":
			h.states[e.Subject] = append(h.states[e.Subject], what)
		case "job":
			h.jobs[e.Subject]++
			if len(h.states[e.PartitionKey]) != 3 || what != "succeeded" {
				t.Errorf("job %s has %s when its action had %v", e.Subject, what, h.states[e.PartitionKey])
			}
		}
	}
	return h
}

// Without topics nothing is kept for them.
func TestNoEventsWithoutTopics(t *testing.T) {
	s := newServer(t, "--kafka", "off")
	s.start()
	s.call("POST", "/v1/actions", `{"id":"a","tenant":"t","type":"echo"}`, http.StatusCreated, nil)
	s.call("POST", "/v1/actions", `{"id":"b","tenant":"t","type":"echo","events":["jobs"]}`, http.StatusBadRequest, nil)
	a, err := s.do("GET", "/metrics", "", nil)
	if err != nil || !strings.Contains(string(a.body), "bulk_action_outbox_size 0\n") {
		t.Errorf("the outbox is not empty: %v", err)
	}
}
