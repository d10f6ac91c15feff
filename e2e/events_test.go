package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// readTopic returns all records of a topic, by partition and offset.
func readTopic(t *testing.T, brokers, name string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	var ends kadm.ListedOffsets
	until.Succeeds(t, "the ends of "+name+" are listed", func() error { // after a start its partitions may have no leader yet
		if ends, err = kadm.NewClient(client).ListEndOffsets(ctx, name); err != nil {
			return err
		}
		return ends.Error()
	})
	want := int64(0)
	ends.Each(func(end kadm.ListedOffset) { want += end.Offset })
	return pollAtLeast(t, client, int(want))
}

// The server is killed repeatedly while actions run, half of which request events of their jobs. At
// the end the topic has each event once, those of an action in order.
func TestEventsSurviveKills(t *testing.T) {
	t.Parallel()
	kills, perAction := 6, 800
	if long() {
		kills, perAction = 30, 8000
	}
	s := newServer(t, "--topic-partitions", "3", "--bulk-requests-per-second", "3000")
	s.start()
	r := &eventsRun{server: s, jobs: perAction, over: make(chan struct{})}
	t.Cleanup(func() { close(r.over) })
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
	until.True(t, "all actions complete", r.completed)
	// The metric of the outbox is of the fetcher's last look, so it says nothing of the last events.
	var h *heard
	until.True(t, "all events are published", func() bool {
		h = hearEvents(t, s.kafka)
		return !slices.ContainsFunc(r.ids, func(id string) bool { return !slices.Contains(h.states[id], "completed") })
	})
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

// eventsRun uploads actions of echoes to a server that is killed from time to time.
type eventsRun struct {
	server  *server
	jobs    int // of each action
	ids     []string
	uploads sync.WaitGroup
	over    chan struct{}
}

// again repeats a request until its answer is not a 5xx, as clients do while their server is away.
func (r *eventsRun) again(method, path, contentType string, body []byte, header ...string) (answer, bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := r.server.do(method, path, contentType, body, header...)
		if err == nil && a.status < 500 {
			return a, true
		}
		select {
		case <-tick.C:
		case <-r.over:
			return a, false
		}
	}
}

// create submits an action and uploads its jobs in chunks, each from the offset that the server
// reports. The action may request the events of its jobs.
func (r *eventsRun) create(id string, jobEvents bool) {
	what := `"type":"echo"`
	if jobEvents {
		what += `,"events":["jobs"]`
	}
	r.ids = append(r.ids, id)
	body := fmt.Appendf(nil, `{"id":%q,"tenant":"tenant of %s",%s,"aggregate":["count","sum:n"]}`, id, id, what)
	r.uploads.Go(func() {
		r.again("POST", "/v1/actions", "application/json", body)
		for sent := 0; sent < r.jobs; {
			var chunk strings.Builder
			for n := sent; n < min(sent+250, r.jobs); n++ {
				fmt.Fprintf(&chunk, "{\"n\":\"%d.%03d\"}\n", n, n%1000)
			}
			a, ok := r.again("POST", "/v1/actions/"+id+"/jobs", "application/x-ndjson", []byte(chunk.String()),
				"Upload-Offset", fmt.Sprint(sent))
			var said struct{ Received int }
			if !ok || a.json(&said) != nil {
				return
			}
			sent = said.Received
		}
		r.again("POST", "/v1/actions/"+id+"/seal", "application/json", fmt.Appendf(nil, `{"total":%d}`, r.jobs))
	})
}

func (r *eventsRun) completed() bool {
	for _, id := range r.ids {
		a, err := r.server.do("GET", "/v1/actions/"+id, "", nil)
		var got action
		if err != nil || a.json(&got) != nil || got.FinishedAt == nil {
			return false
		}
	}
	return true
}

// heard is the content of the topic of events: the states of each action in order, and how often
// each job is done.
type heard struct {
	states map[string][]string
	jobs   map[string]int
}

// hearEvents reads the topic of events. No event may be there twice, and no event of a job when its
// action does not run.
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

// Without topics no events are stored.
func TestNoEventsWithoutTopics(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--kafka", "off")
	s.start()
	s.call("POST", "/v1/actions", `{"id":"a","tenant":"t","type":"echo"}`, http.StatusCreated, nil)
	s.call("POST", "/v1/actions", `{"id":"b","tenant":"t","type":"echo","events":["jobs"]}`, http.StatusBadRequest, nil)
	a, err := s.do("GET", "/metrics", "", nil)
	if err != nil || !strings.Contains(string(a.body), "bulk_action_outbox_size 0\n") {
		t.Errorf("the outbox is not empty: %v", err)
	}
}
