package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

// recorder is a publisher that keeps its events. When it fails, it has kept a part, as a
// publisher to several partitions may.
type recorder struct {
	mu     sync.Mutex
	calls  int
	events []bulk.Event
	fail   func(call int) bool
	took   time.Duration
}

func (p *recorder) fails(when func(call int) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = when
}

func (p *recorder) Publish(ctx context.Context, events []bulk.Event) error {
	p.mu.Lock()
	p.calls++
	call, fail, took := p.calls, p.fail, p.took
	p.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if fail != nil && fail(call) {
		p.events = append(p.events, events[:call%(len(events)+1)]...)
		return errors.New("not taken")
	}
	p.events = append(p.events, events...)
	return nil
}

// arrived returns the events as seen by a consumer that drops repeated ones. Events with the
// same id must be equal.
func (p *recorder) arrived(t *testing.T) (events []bulk.Event) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]bulk.Event{}
	for _, e := range p.events {
		before, again := seen[e.ID]
		if !again {
			seen[e.ID] = e
			events = append(events, e)
		} else if fmt.Sprint(before) != fmt.Sprint(e) {
			t.Errorf("two events have the id %s: %+v and %+v", e.ID, before, e)
		}
	}
	return events
}

// story returns an action's events in order, with consecutive events of jobs as one word. It
// checks that no job has two.
func story(t *testing.T, events []bulk.Event, action string) (words []string, jobs map[string]string) {
	t.Helper()
	jobs = map[string]string{}
	for _, e := range events {
		if e.Action != action {
			continue
		}
		word := strings.TrimPrefix(e.Type, "io.sluice.bulk.action.")
		if e.Subject != e.Action {
			if jobs[e.Subject] != "" {
				t.Errorf("%s has two events", e.Subject)
			}
			jobs[e.Subject], word = e.Type, "jobs"
		}
		if len(words) == 0 || word != "jobs" || words[len(words)-1] != "jobs" {
			words = append(words, word)
		}
	}
	return words, jobs
}

// outbox returns how many events wait to be published.
func (r *rig) outbox() (events int64) {
	r.t.Helper()
	if err := r.Store().Fetch(context.Background(), func(b *bulk.Backlog) { events = b.Outbox }); err != nil {
		r.t.Fatal(err)
	}
	return events
}

func (r *rig) drainOutbox() {
	r.t.Helper()
	for range 1000 {
		if r.outbox() == 0 {
			return
		}
		pass(time.Second)
	}
	r.t.Fatal("the outbox does not become empty")
}

// TestEventsArriveThoughPublishingFails checks that all events arrive, those of each action
// in order, though publishing is slow and fails two times of three, in the middle of a batch.
func TestEventsArriveThoughPublishingFails(t *testing.T) {
	p := &recorder{took: 300 * time.Millisecond, fail: func(call int) bool { return call%3 > 0 }}
	mux := handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		pass(50 * time.Millisecond)
		if job.Index%10 == 3 {
			return nil, bulk.SkipRetry
		}
		return job.Payload, nil
	})
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		told := r.submit(bulk.Spec{ID: "told", Type: "send", Events: []string{"actions", "jobs"}}, 600)
		quiet := r.submit(bulk.Spec{ID: "quiet", Type: "send"}, 600)
		pass(time.Second)
		if _, err := r.Pause(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if _, err := r.Resume(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		r.finish(told)
		r.finish(quiet)
		r.drainOutbox()
		events := p.arrived(t)
		words, jobs := story(t, events, told)
		if want := []string{"created", "dispatched", "running", "jobs", "aggregating", "completed"}; !slices.Equal(words, want) {
			t.Errorf("events %v, want %v", words, want)
		}
		if len(jobs) != 600 || jobs["told-3"] != bulk.JobFailed || jobs["told-4"] != bulk.JobSucceeded {
			t.Errorf("%d jobs have events, the fourth %q, the fifth %q", len(jobs), jobs["told-3"], jobs["told-4"])
		}
		words, jobs = story(t, events, quiet)
		if want := []string{"created", "dispatched", "running", "paused", "resumed", "aggregating", "completed"}; !slices.Equal(words, want) || len(jobs) > 0 {
			t.Errorf("events %v and of %d jobs, want %v and none", words, len(jobs), want)
		}
	}, engine.WithPublisher(p))
}

// TestNothingIsKeptWithoutAPublisher checks that without a publisher no events are kept, and
// that actions cannot ask for them.
func TestNothingIsKeptWithoutAPublisher(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		for _, events := range [][]string{{"jobs"}, {"actions"}} {
			var wrong *bulk.SpecError
			if _, _, err := r.Create(t.Context(), bulk.Spec{Tenant: "t", Type: "echo", Events: events}); !errors.As(err, &wrong) || wrong.Field != "events" {
				t.Errorf("an action that asks for %v: %v, want a SpecError of events", events, err)
			}
		}
		r.finish(r.submit(bulk.Spec{Type: "echo"}, 10))
		if events := r.outbox(); events != 0 {
			t.Errorf("%d events are kept", events)
		}
	})
}

func TestCreateRefusesUnknownEvents(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		var wrong *bulk.SpecError
		_, _, err := r.Create(t.Context(), bulk.Spec{Tenant: "t", Type: "echo", Events: []string{"jobs", "leases"}})
		if !errors.As(err, &wrong) || wrong.Field != "events" || !strings.Contains(wrong.Why, `"jobs" and "actions"`) {
			t.Errorf("events of leases: %v", err)
		}
		spec := bulk.Spec{ID: "a", Tenant: "t", Type: "echo", Events: []string{"actions", "jobs", "jobs"}}
		if a, _, err := r.Create(t.Context(), spec); err != nil || !a.JobEvents() {
			t.Errorf("%+v, error %v", a, err)
		}
		spec.Events = []string{"jobs"}
		if _, created, err := r.Create(t.Context(), spec); err != nil || created {
			t.Errorf("the same in other words: created %v, error %v", created, err)
		}
		spec.Events = []string{"actions"}
		var exists *bulk.ExistsError
		if _, _, err := r.Create(t.Context(), spec); !errors.As(err, &exists) {
			t.Errorf("the same id without events of jobs: %v, want an ExistsError", err)
		}
	}, engine.WithPublisher(&recorder{}))
}

// TestAPublisherThatHangs checks that an attempt to publish ends after half a minute, and
// delays neither jobs nor the stop. Unpublished events are published, unchanged, after the
// next start.
func TestAPublisherThatHangs(t *testing.T) {
	hangs := &recorder{took: time.Hour}
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "echo", Events: []string{"jobs"}}, 10)
		bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 10, 0)
		pass(5 * time.Minute)
		hangs.mu.Lock()
		if hangs.calls < 5 || len(hangs.events) > 0 {
			t.Errorf("called %d times in 5 minutes", hangs.calls)
		}
		hangs.mu.Unlock()
		waiting, _, err := r.Store().Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r.Close(t)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("stopping took %v", took)
		}
		well := &recorder{}
		r.Restart(t, bulk.NewMux(), engine.WithPublisher(well))
		r.drainOutbox()
		if got := well.arrived(t); len(got) != 15 || fmt.Sprint(got) != fmt.Sprint(waiting) {
			t.Errorf("%d events after the restart, want those that waited, %d", len(got), len(waiting))
		}
	}, engine.WithPublisher(hangs))
}

type panicking struct {
	recorder
	left int
}

func (p *panicking) Publish(ctx context.Context, events []bulk.Event) error {
	if p.left--; p.left >= 0 {
		panic("no")
	}
	return p.recorder.Publish(ctx, events)
}

func TestAPublisherThatPanics(t *testing.T) {
	p := &panicking{left: 2}
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		r.finish(r.submit(bulk.Spec{Type: "echo"}, 1))
		r.drainOutbox()
		if got := p.arrived(t); len(got) != 5 {
			t.Errorf("%d events arrived, want 5", len(got))
		}
	}, engine.WithPublisher(p))
}

// TestResultsInEvents checks that events of jobs have results, also of remote workers, up to
// their bound.
func TestResultsInEvents(t *testing.T) {
	p := &recorder{}
	mux := handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		return bytes.Repeat([]byte("1"), bulk.MaxEventResult+int(job.Index)), nil
	})
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		r.finish(r.submit(bulk.Spec{ID: "a", Type: "send", Events: []string{"jobs"}, Aggregate: []string{"count"}}, 2))
		remote := r.submit(bulk.Spec{ID: "b", Type: "far", Events: []string{"jobs"}}, 1)
		jobs, err := r.Lease(t.Context(), bulk.LeaseRequest{Types: []string{"far"}, Max: 1}, time.Minute)
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		if _, err := r.Settle(t.Context(), []engine.Report{{Lease: jobs[0].Lease, Kind: bulk.Succeeded, Result: []byte(`{"x":1}`)}}); err != nil {
			t.Fatal(err)
		}
		r.finish(remote)
		r.drainOutbox()
		lengths := map[string]string{}
		for _, e := range p.arrived(t) {
			var data struct {
				Result    json.RawMessage `json:"result"`
				Truncated bool            `json:"result_truncated"`
			}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			if e.Type == bulk.JobSucceeded {
				lengths[e.Subject] = fmt.Sprint(len(data.Result), data.Truncated)
			}
			if line, err := e.CloudEvent(); err != nil || len(line) > bulk.MaxEventBytes {
				t.Errorf("%s takes %d bytes, error %v", e.Subject, len(line), err)
			}
		}
		want := map[string]string{"a-0": fmt.Sprint(bulk.MaxEventResult, false), "a-1": "4 true", "b-0": "7 false"}
		if fmt.Sprint(lengths) != fmt.Sprint(want) {
			t.Errorf("lengths of results: %v, want %v", lengths, want)
		}
	}, engine.WithPublisher(p))
}

// slowStore settles slowly, and records how much it is given. It keeps no results.
type slowStore struct {
	bulk.Store
	mu            sync.Mutex
	largest, held int
	mostHeld      int
}

func (s *slowStore) Settle(ctx context.Context, settlements []bulk.Settlement) ([]bulk.Verdict, error) {
	bytes := 0
	settlements = slices.Clone(settlements)
	for i := range settlements {
		bytes += len(settlements[i].Result)
		settlements[i].Result = nil
	}
	pass(200 * time.Millisecond)
	s.mu.Lock()
	s.largest, s.held = max(s.largest, bytes), s.held-bytes
	s.mu.Unlock()
	return s.Store.Settle(ctx, settlements)
}

// TestResultsWaitInBoundedMemory checks that results wait for a slow disk in bounded memory.
func TestResultsWaitInBoundedMemory(t *testing.T) {
	var s *slowStore
	mux := handled(func(context.Context, *bulk.Job) ([]byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held += bulk.MaxEventResult
		s.mostHeld = max(s.mostHeld, s.held)
		return make([]byte, bulk.MaxEventResult), nil
	})
	const workers = 100
	config := bulk.Config{RequestsPerSecond: -1, Workers: workers}
	inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s = &slowStore{Store: r.Store()}
		engine, err := engine.New(s, mux, config, engine.WithPublisher(&recorder{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := engine.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		r.Engine.Engine = engine
		r.finish(r.submit(bulk.Spec{Type: "send", Events: []string{"jobs"}}, 2000))
		s.mu.Lock()
		defer s.mu.Unlock()
		if most := 8<<20 + bulk.MaxEventResult; s.largest > most || s.largest < 1<<20 {
			t.Errorf("one settlement had %d bytes of results, want at most %d", s.largest, most)
		}
		// The waiting results, one for each worker, those being settled, and the jobs leased
		// ahead.
		if most := 32<<20 + 2*workers*bulk.MaxEventResult + 16<<20; s.mostHeld > most {
			t.Errorf("%d bytes of results waited at one time, want at most %d", s.mostHeld, most)
		}
	})
}
