package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/ports"
)

// accepted is work that a server took before a rush: jobs of an action, a visitor of a room, a Kafka producer. Each
// kind has its pace, and counts how often it went on.
type accepted struct {
	server *server
	done   map[string]*atomic.Int64
	slow   map[string]*atomic.Int64 // the longest, in nanoseconds
	work   sync.WaitGroup
	over   chan struct{}
}

// acceptedEvery is the time from one step of a lane to the next.
const acceptedEvery = 50 * time.Millisecond

func newAccepted(t *testing.T, s *server) *accepted {
	t.Helper()
	a := &accepted{server: s, done: map[string]*atomic.Int64{}, slow: map[string]*atomic.Int64{}, over: make(chan struct{})}
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
	s.newTopic("rush", 4)
	producer := s.connect()
	lanes := map[string]func() error{
		"jobs": a.job,
		"visitor": func() error {
			answer, err := s.do("GET", "/v1/rooms/accepted/visitors/me", "", nil, "Authorization", "Bearer "+place.Ticket)
			return expect(answer, err)
		},
		"producer": func() error {
			return producer.ProduceSync(t.Context(), &kgo.Record{Topic: "accepted", Value: []byte("x")}).FirstErr()
		},
	}
	for name, step := range lanes {
		a.done[name], a.slow[name] = &atomic.Int64{}, &atomic.Int64{}
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
		began := time.Now()
		if err := step(); err != nil {
			if t.Context().Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		took := int64(time.Since(began))
		for {
			before := a.slow[name].Load()
			if took <= before || a.slow[name].CompareAndSwap(before, took) {
				break
			}
		}
		a.done[name].Add(1)
	}
}

// during returns how often each kind goes on in some time.
func (a *accepted) during(d time.Duration) map[string]int64 {
	before := map[string]int64{}
	for name, done := range a.done {
		before[name] = done.Load()
		a.slow[name].Store(0)
	}
	time.Sleep(d)
	for name, done := range a.done {
		before[name] = done.Load() - before[name]
	}
	return before
}

func TestOverloadMeasure(t *testing.T) {
	for _, r := range []rush{
		{Edge: "create", Clients: 2000}, {Edge: "enqueue", Clients: 2000, Body: 100}, {Edge: "enqueue", Clients: 2000, Body: 200_000},
		{Edge: "enter", Clients: 2000}, {Edge: "list", Clients: 2000}, {Edge: "gate", Clients: 2000},
		{Edge: "produce", Clients: 2000, Body: 100}, {Edge: "produce", Clients: 2000, Body: 500_000},
	} {
		t.Run(fmt.Sprintf("%s-%d", r.Edge, r.Body), func(t *testing.T) {
			front := ports.Addrs(t, 1)[0]
			s := newServer(t, "--gate-http", front, "--gate-room", "rush", "--gate-upstream", shop(t).URL)
			if text := os.Getenv("SLUICE_TEST_SERVER_CORE"); text != "" {
				s.prefix = strings.Fields(text)
			}
			s.start()
			a := newAccepted(t, s)
			switch r.Edge {
			case "gate":
				r.Address = front
			case "produce":
				r.Address = s.kafka
			default:
				r.Address = s.addr
			}
			time.Sleep(time.Second)
			alone := a.during(4 * time.Second)
			slowAlone := a.slows()
			rushing := r.start(t)
			time.Sleep(2 * time.Second)
			before := rushing.counts()
			var most atomic.Int64
			stop := make(chan struct{})
			var w sync.WaitGroup
			w.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						most.Store(max(most.Load(), s.memory()))
					}
				}
			})
			beside := a.during(8 * time.Second)
			close(stop)
			w.Wait()
			after := rushing.counts()
			t.Logf("alone %v %v, beside (half) %v %v; memory %d MiB; taken %d/s refused %d/s wrong %d broken %d %s", alone, slowAlone, half(beside), a.slows(), most.Load()>>20,
				(after.Taken-before.Taken)/8, (after.Refused-before.Refused)/8, after.Wrong, after.Broken, after.Example)
		})
	}
}

func half(m map[string]int64) map[string]int64 {
	for k := range m {
		m[k] /= 2
	}
	return m
}

func (a *accepted) slows() map[string]time.Duration {
	m := map[string]time.Duration{}
	for name, slow := range a.slow {
		m[name] = time.Duration(slow.Load()).Round(time.Millisecond)
	}
	return m
}
