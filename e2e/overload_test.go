//go:build long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// accepted is work that a server took before a rush: jobs of an action, a visitor of a room, Kafka clients that fetch, commit
// offsets and produce. Each kind has its pace, and counts how often it went on.
type accepted struct {
	server *server
	done   map[string]*atomic.Int64
	work   sync.WaitGroup
	over   chan struct{}
}

// acceptedEvery is the time from one step of a lane to the next.
const acceptedEvery = 50 * time.Millisecond

func newAccepted(t *testing.T, s *server) *accepted {
	t.Helper()
	a := &accepted{server: s, done: map[string]*atomic.Int64{}, over: make(chan struct{})}
	const jobs = 20_000
	s.call("POST", "/v1/actions", `{"id":"accepted","tenant":"accepted","type":"accepted"}`, http.StatusCreated, nil)
	for from := 0; from < jobs; from += 10_000 {
		if answer, err := s.do("POST", "/v1/actions/accepted/jobs", "application/x-ndjson", []byte(strings.Repeat("{}\n", 10_000)), "Upload-Offset", fmt.Sprint(from)); err != nil || answer.status >= 300 {
			t.Fatalf("upload: %v %d %s", err, answer.status, answer.body)
		}
	}
	s.call("POST", "/v1/actions/accepted/seal", fmt.Sprintf(`{"total":%d}`, jobs), http.StatusOK, nil)
	for _, name := range []string{"accepted", "rush"} {
		s.call("PUT", "/v1/rooms/"+name, `{"mode":"teller","capacity":10,"pass_ttl_ms":3600000,"joins_per_minute":0}`, http.StatusCreated, nil)
	}
	var place struct{ Ticket string }
	s.call("POST", "/v1/rooms/accepted/visitors", "{}", http.StatusCreated, &place)
	s.newTopic("accepted", 1)
	producer := s.connect()
	s.newTopic("rush", rushPartitions)
	for range 100 {
		producer.Produce(t.Context(), &kgo.Record{Topic: "accepted", Value: make([]byte, 100)}, nil)
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	group := kadm.NewClient(s.connect())
	consumer := s.connect(kgo.MaxVersions(kversion.V2_8_0()))
	lanes := map[string]func() error{
		"jobs": a.job,
		"visitor": func() error {
			answer, err := s.do("GET", "/v1/rooms/accepted/visitors/me", "", nil, "Authorization", "Bearer "+place.Ticket)
			return expect(answer, err)
		},
		"consumer": func() error { return fetchOnce(t.Context(), consumer, "accepted") },
		"group": func() error {
			commits := kadm.Offsets{}
			commits.AddOffset("accepted", 0, 1, -1)
			return group.CommitAllOffsets(t.Context(), "accepted", commits)
		},
		"producer": func() error {
			return producer.ProduceSync(t.Context(), &kgo.Record{Topic: "accepted", Value: []byte("x")}).FirstErr()
		},
	}
	for name, step := range lanes {
		a.done[name] = &atomic.Int64{}
		for range 4 {
			a.work.Go(func() { a.lane(t, name, step) })
		}
	}
	t.Cleanup(func() {
		close(a.over)
		a.work.Wait()
	})
	return a
}

// fetchOnce fetches the first records of a topic.
func fetchOnce(ctx context.Context, client *kgo.Client, topic string) error {
	r := kmsg.NewPtrFetchRequest()
	r.SessionEpoch, r.MinBytes, r.MaxBytes = -1, 1, 1<<20
	from, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	part.CurrentLeaderEpoch, part.PartitionMaxBytes = -1, 1<<10
	from.Topic, from.Partitions = topic, append(from.Partitions, part)
	r.Topics = append(r.Topics, from)
	answer, err := client.Broker(1).RetriableRequest(ctx, r)
	if err != nil {
		return err
	}
	got := answer.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return err
	}
	if len(got.RecordBatches) == 0 {
		return errors.New("no records")
	}
	return nil
}

func expect(a answer, err error) error {
	if err == nil && a.status >= 300 {
		err = fmt.Errorf("%d %s", a.status, a.body)
	}
	return err
}

// job leases a job and settles it, as a remote worker does.
func (a *accepted) job() error {
	answer, err := a.server.do("POST", "/v1/leases", "application/json", []byte(`{"types":["accepted"],"max":1,"wait_ms":5000}`))
	if err = expect(answer, err); err != nil {
		return err
	}
	var leased struct {
		Jobs []struct{ Lease json.RawMessage }
	}
	if err := answer.json(&leased); err != nil || len(leased.Jobs) == 0 {
		return fmt.Errorf("%s: %w", answer.body, err)
	}
	answer, err = a.server.do("POST", "/v1/leases/ack", "application/json", fmt.Appendf(nil, `{"outcomes":[{"lease":%s,"status":"succeeded"}]}`, leased.Jobs[0].Lease))
	return expect(answer, err)
}

func (a *accepted) lane(t *testing.T, name string, step func() error) {
	tick := time.NewTicker(acceptedEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.over:
			return
		case <-tick.C:
		}
		if err := step(); err != nil {
			if t.Context().Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		a.done[name].Add(1)
	}
}

// during returns how often each kind goes on in some time.
func (a *accepted) during(d time.Duration) map[string]int64 {
	steps := map[string]int64{}
	for name, done := range a.done {
		steps[name] = -done.Load()
	}
	<-time.After(d)
	for name, done := range a.done {
		steps[name] += done.Load()
	}
	return steps
}

// share returns the least share of their pace that the kinds of accepted work have beside a rush.
func share(beside, alone map[string]int64) float64 {
	least := math.Inf(1)
	for name := range alone {
		least = min(least, float64(beside[name])/float64(max(alone[name], 1)))
	}
	return least
}

// overloadBudget is the memory that the server is meant to use.
const overloadBudget = 512 << 20

// Hundreds of clients who heed no Retry-After ask for much more, at one edge, than the server can do. Work that
// was accepted before goes on, memory stays within the budget, and refusals name a time to come again. With
// SLUICE_LONG they are 2,000; the test logs the pace.
func TestOverload(t *testing.T) {
	clients, window, windows := 500, 2*time.Second, 1
	if long() {
		clients, window, windows = 2000, 5*time.Second, 4
	}
	for _, r := range []rush{{Edge: "enqueue", Body: 100}, {Edge: "enter"}, {Edge: "list"}, {Edge: "gate"}, {Edge: "produce", Body: 100}, {Edge: "produce", Body: 500_000}} {
		t.Run(fmt.Sprintf("%s-%d", r.Edge, r.Body), func(t *testing.T) {
			front := ports.Addrs(t, 1)[0]
			s := startServer(t, "--gate-http", front, "--gate-room", "rush", "--gate-upstream", shop(t).URL, "--memory-budget", strconv.Itoa(overloadBudget))
			a := newAccepted(t, s)
			r.Clients, r.Address = clients, map[string]string{"gate": front, "produce": s.seeds()[0]}[r.Edge]
			if r.Address == "" {
				r.Address = s.addr
			}
			alone := a.during(window)
			if r.Edge == "produce" && r.Body < 1000 {
				delete(alone, "producer") // it has as much of the server as each of the others
			}
			rushing := r.start(t)
			until.True(t, "the rush is answered", func() bool { return rushing.counts().Taken > 0 })
			measured := 0
			until.True(t, "accepted work goes on", func() bool {
				before := rushing.counts()
				beside := a.during(window)
				after := rushing.counts()
				if memory := s.memory(); memory > overloadBudget {
					t.Fatalf("the server uses %d MiB", memory>>20)
				}
				if after.Wrong > 0 {
					t.Fatalf("%d answers are wrong, such as %s", after.Wrong, after.Example)
				}
				least := share(beside, alone)
				t.Logf("%.2f of its pace beside %d clients: alone %v, then %v; of the others %d were taken and %d refused; %d MiB of memory",
					least, clients, alone, beside, after.Taken-before.Taken, after.Refused-before.Refused, s.memory()>>20)
				measured++
				return least >= 1.0/3 && measured >= windows
			})
		})
	}
}
