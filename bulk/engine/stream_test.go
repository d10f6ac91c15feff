package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

func oneJob(n int) engine.NewJob {
	return engine.NewJob{Tenant: "t", Type: "echo", Payload: fmt.Appendf(nil, "%d", n)}
}

func (r *rig) enqueue(job engine.NewJob) engine.Enqueued {
	r.t.Helper()
	enqueued, err := r.Enqueue(context.Background(), job)
	if err != nil {
		r.t.Fatal(err)
	}
	return enqueued
}

func TestEnqueuedJobsShareTheStreamOfTheirWindow(t *testing.T) {
	inVirtualTime(t, bulk.Config{StreamWindow: time.Minute}, bulk.NewMux(), func(t *testing.T, r *rig) {
		pass(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second))) // half a window
		first := r.enqueue(oneJob(0))
		if want := time.Now().UTC().Truncate(time.Minute).Format("20060102T150405Z"); first.Index != 0 || !strings.HasPrefix(first.Action, "stream-"+want+"-") {
			t.Errorf("the first job is %+v, want index 0 in the stream of the window %s", first, want)
		}
		pass(time.Second)
		if a := r.action(first.Action); a.Status != bulk.Running || !a.Open || a.Succeeded != 1 {
			t.Errorf("with its only job done, the stream is %s, open: %v, %+v; want RUNNING and open", a.Status, a.Open, a.Counts)
		}
		if second := r.enqueue(oneJob(1)); second.Action != first.Action || second.Index != 1 || second.Duplicate {
			t.Errorf("the second job is %+v, want index 1 of %s", second, first.Action)
		}
		other := oneJob(2)
		other.Class = bulk.High
		if third := r.enqueue(other); third.Action == first.Action {
			t.Errorf("a job of another class is in the same stream")
		}
		keyed := oneJob(2)
		keyed.Key = "customer 7"
		alike := r.enqueue(keyed)
		if a := r.action(alike.Action); alike.Action == first.Action || a.Key != "customer 7" {
			t.Errorf("a job of another key is in %s with the key %q, want a stream of its own beside %s", alike.Action, a.Key, first.Action)
		}
		costly := oneJob(2)
		costly.Cost = 5
		if dear := r.enqueue(costly); dear.Action == first.Action || r.action(dear.Action).Cost != 5 {
			t.Errorf("a job of another cost is in %s, want a stream of its own beside %s", dear.Action, first.Action)
		}
		if again := r.enqueue(keyed); again.Action != alike.Action || again.Index != 1 {
			t.Errorf("the second job of a key is %+v, want index 1 of %s", again, alike.Action)
		}
		pass(30*time.Second - 2*time.Second)
		if a := r.action(first.Action); a.Status != bulk.Running || a.Succeeded != 2 {
			t.Errorf("at the end of its window the stream is %s, %+v; want RUNNING with 2 succeeded", a.Status, a.Counts)
		}
		pass(2 * time.Second)
		if next := r.enqueue(oneJob(3)); next.Action == first.Action || next.Index != 0 {
			t.Errorf("a job of the next window is %+v", next)
		}
		a := r.finish(first.Action)
		bulktest.RequireCounts(t, a, bulk.Completed, 2, 0)
		if late := a.FinishedAt.Sub(a.CreatedAt.Truncate(time.Minute).Add(time.Minute)); a.Total != 2 || late > 10*time.Second {
			t.Errorf("finished %s after its window with a total of %d, want soon and 2", late, a.Total)
		}
	})
}

// TestEnqueueConcurrently has two engines on one store, and callers that share writes.
// failsFirst counts how often jobs run, by payload: they fail, except in replays. Job 2 succeeds when
// hold is closed.
func failsFirst(hold *chan struct{}, ran *sync.Map) *bulk.Mux {
	return handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		if string(job.Payload) == "2" {
			<-*hold
			return nil, nil
		}
		times, _ := ran.LoadOrStore(string(job.Payload), new(atomic.Int64))
		times.(*atomic.Int64).Add(1)
		if job.Spec.ReplayOf == "" {
			return nil, bulk.SkipRetry
		}
		return nil, nil
	})
}

// TestReplayOfAnOpenStream: the dead letters before the first job that has not ended run again, and
// the others when it has; none twice.
func TestReplayOfAnOpenStream(t *testing.T) {
	var hold chan struct{}
	var ran sync.Map
	inVirtualTime(t, bulk.Config{}, failsFirst(&hold, &ran), func(t *testing.T, r *rig) {
		hold = make(chan struct{})
		pass(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		send := func(n int) string {
			job := oneJob(n)
			job.Type = "send"
			stream := r.enqueue(job).Action
			pass(time.Second)
			return stream
		}
		stream := send(0)
		for i := range 4 {
			send(1 + i)
		}
		replay := func(want int64) {
			t.Helper()
			again, err := r.Replay(r.t.Context(), stream, bulk.FailureFilter{})
			if err != nil || again.Total != want {
				t.Fatalf("replayed %d jobs as %s, error %v; want %d", again.Total, again.ID, err, want)
			}
			bulktest.RequireCounts(t, r.finish(again.ID), bulk.Completed, want, 0)
		}
		replay(2)
		var refused *bulk.TransitionError
		if _, err := r.Replay(r.t.Context(), stream, bulk.FailureFilter{}); !errors.As(err, &refused) || len(r.letters(stream)) != 2 {
			t.Errorf("with two dead letters behind a job that runs: %v, %d are left", err, len(r.letters(stream)))
		}
		close(hold)
		pass(time.Second)
		// Interrupted when it has sealed the replay, and repeated when one more job has failed.
		crashed, err := engine.New(&crashing{Store: r.Store(), left: 3}, bulk.NewMux(), bulk.Config{})
		if err == nil {
			_, err = crashed.Replay(r.t.Context(), stream, bulk.FailureFilter{})
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("interrupted: %v", err)
		}
		send(5)
		replay(2)
		replay(1)
		if a := r.action(stream); !a.Open || a.Replays != 3 || len(r.letters(stream)) != 0 {
			t.Errorf("in the end the stream is open: %v, with %d replays and %d dead letters", a.Open, a.Replays, len(r.letters(stream)))
		}
	})
	ran.Range(func(payload, times any) bool {
		if n := times.(*atomic.Int64).Load(); n != 2 {
			t.Errorf("job %s ran %d times, want 2", payload, n)
		}
		return true
	})
}

func TestEnqueueConcurrently(t *testing.T) {
	inVirtualTime(t, bulk.Config{StreamWindow: time.Minute}, bulk.NewMux(), func(t *testing.T, r *rig) {
		second, err := engine.New(r.Store(), bulk.NewMux(), r.config) // not started
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var indexes []int64
		streams := map[string]bool{}
		var callers sync.WaitGroup
		for i := range 64 {
			engine := []*engine.Engine{r.Engine.Engine, second}[i%2]
			callers.Go(func() {
				for n := range 20 {
					e, err := engine.Enqueue(context.Background(), oneJob(20*i+n))
					mu.Lock()
					if err != nil {
						t.Error(err)
					}
					indexes, streams[e.Action] = append(indexes, e.Index), true
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		slices.Sort(indexes)
		for i, index := range indexes {
			if index != int64(i) {
				t.Fatalf("job %d has the index %d", i, index)
			}
		}
		if len(indexes) != 64*20 || len(streams) != 1 {
			t.Fatalf("%d jobs in %d streams, want %d in 1", len(indexes), len(streams), 64*20)
		}
		for id := range streams {
			bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 64*20, 0)
		}
		synctest.Wait()
	})
}

func TestEnqueueAfterAStreamHasEnded(t *testing.T) {
	inVirtualTime(t, bulk.Config{StreamWindow: time.Minute}, bulk.NewMux(), func(t *testing.T, r *rig) {
		first := r.enqueue(oneJob(0))
		pass(time.Second)
		if _, err := r.Cancel(t.Context(), first.Action); err != nil {
			t.Fatal(err)
		}
		if a := r.action(first.Action); a.Open || a.Total != 1 || a.Succeeded != 1 {
			t.Errorf("canceled, the stream is open: %v, total %d, %+v", a.Open, a.Total, a.Counts)
		}
		next := r.enqueue(oneJob(1))
		if next.Action != first.Action+".2" || next.Index != 0 {
			t.Errorf("after the stream was canceled: %+v", next)
		}
		r.Restart(t, bulk.NewMux())
		if again := r.enqueue(oneJob(2)); again.Action != next.Action || again.Index != 1 {
			t.Errorf("after a restart: %+v, want index 1 of %s", again, next.Action)
		}
		bulktest.RequireCounts(t, r.finish(next.Action), bulk.Completed, 2, 0)
	})
}

// stalling is a store whose appends wait.
type stalling struct {
	bulk.Store
	release chan struct{}
}

func (s *stalling) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	<-s.release
	return s.Store.Append(ctx, id, offset, payloads)
}

// callers enqueue single jobs, one after another, with an engine whose store's appends wait.
type callers struct {
	t       *testing.T
	store   *stalling
	engine  *engine.Engine
	waiting sync.WaitGroup
	results []*error
}

func newCallers(t *testing.T, r *rig) *callers {
	t.Helper()
	store := &stalling{r.Store(), make(chan struct{})}
	e, err := engine.New(store, bulk.NewMux(), r.config)
	if err != nil {
		t.Fatal(err)
	}
	return &callers{t: t, store: store, engine: e}
}

// call enqueues the next job, and returns when that waits.
func (c *callers) call(ctx context.Context) {
	job, result := oneJob(len(c.results)), new(error)
	c.results = append(c.results, result)
	c.waiting.Go(func() { _, *result = c.engine.Enqueue(ctx, job) })
	synctest.Wait()
}

// end lets the store work, and compares the errors of all callers with those that are wanted.
func (c *callers) end(want ...error) {
	c.t.Helper()
	close(c.store.release)
	c.waiting.Wait()
	for i, got := range c.results {
		if !errors.Is(*got, want[i]) {
			c.t.Errorf("caller %d: %v, want %v", i, *got, want[i])
		}
	}
}

func TestEnqueueOfCallersThatLeave(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		c := newCallers(t, r)
		leaving, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{leaving, leaving, t.Context(), leaving} {
			c.call(ctx)
		}
		leave()
		synctest.Wait()
		// The first leads: its job is stored though it has left. Those who waited are gone.
		c.end(nil, context.Canceled, nil, context.Canceled)
		a := bulktest.RequireAction(t, r.Engine, "t", "echo")
		if a.Received != 2 {
			t.Errorf("%d jobs were enqueued, want those of callers 0 and 2", a.Received)
		}
	})
}

// TestEnqueueAfterACallerHasLeftItsWrite: the caller after a write leads although one of its callers has left.
func TestEnqueueAfterACallerHasLeftItsWrite(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		c := newCallers(t, r)
		leaving, leave := context.WithCancel(t.Context())
		c.call(t.Context())
		c.call(t.Context())
		c.call(leaving)
		c.store.release <- struct{}{} // 0 is stored, then 1 leads and stores 2 too
		synctest.Wait()
		leave()
		c.call(t.Context())
		c.end(nil, nil, context.Canceled, nil)
		if a := bulktest.RequireAction(t, r.Engine, "t", "echo"); a.Received != 4 {
			t.Errorf("%d jobs were enqueued, want 4: that of a caller who leaves is being stored", a.Received)
		}
	})
}

func TestEnqueueIsBounded(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		c := newCallers(t, r)
		e, store := c.engine, c.store
		large := oneJob(0)
		large.Payload = make([]byte, bulk.MaxPayloadBytes)
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				if _, err := e.Enqueue(t.Context(), large); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := e.Enqueue(t.Context(), oneJob(1)); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("of a tenant with half of 64 MiB that wait: %v, want ErrBusy", err)
		}
		other := oneJob(2)
		other.Tenant = "u"
		callers.Go(func() {
			if _, err := e.Enqueue(t.Context(), other); err != nil {
				t.Error("of another tenant:", err)
			}
		})
		synctest.Wait()
		close(store.release)
		callers.Wait()
		if _, err := e.Enqueue(t.Context(), oneJob(1)); err != nil {
			t.Error("when they are stored:", err)
		}
	})
}

// Kinds of jobs that are in use are bounded; one that is not in use gives way.
func TestEnqueueBoundsKinds(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		c := newCallers(t, r)
		e, store := c.engine, c.store
		kind := func(n int) engine.NewJob {
			job := oneJob(n)
			job.Timeout = time.Duration(n+1) * time.Millisecond
			return job
		}
		var callers sync.WaitGroup
		for n := range 10_000 {
			callers.Go(func() {
				if _, err := e.Enqueue(t.Context(), kind(n)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := e.Enqueue(t.Context(), kind(10_000)); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("with 10,000 kinds of jobs in use: %v, want ErrBusy", err)
		}
		close(store.release)
		callers.Wait()
		if _, err := e.Enqueue(t.Context(), kind(10_000)); err != nil {
			t.Error("when they are stored:", err)
		}
	})
}

// full is a store whose actions have nearly a million jobs more than they have.
type full struct{ bulk.Store }

func (s full) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	received, err := s.Store.Append(ctx, id, offset, payloads)
	return received + 999_998, err
}

func TestEnqueueIntoALargeStream(t *testing.T) {
	inVirtualTime(t, bulk.Config{StreamWindow: time.Minute}, bulk.NewMux(), func(t *testing.T, r *rig) {
		engine, err := engine.New(full{r.Store()}, bulk.NewMux(), r.config)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for n := range 3 {
			enqueued, err := engine.Enqueue(t.Context(), oneJob(n))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, enqueued.Action)
		}
		if ids[1] != ids[0] || ids[2] != ids[0]+".2" {
			t.Errorf("jobs 999,999 to 1,000,001 are in %v, want the last in another stream", ids)
		}
		bulktest.RequireCounts(t, r.finish(ids[0]), bulk.Completed, 2, 0)
	})
}

func TestEnqueueRefusesBadJobs(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		for field, edit := range map[string]func(*engine.NewJob){
			"tenant":        func(j *engine.NewJob) { j.Tenant = "" },
			"type":          func(j *engine.NewJob) { j.Type = "" },
			"payload":       func(j *engine.NewJob) { j.Payload = make([]byte, bulk.MaxPayloadBytes+1) },
			"unique":        func(j *engine.NewJob) { j.Unique = strings.Repeat("k", engine.MaxUniqueBytes+1) },
			"unique_for_ms": func(j *engine.NewJob) { j.UniqueFor = time.Second },
			"run_at":        func(j *engine.NewJob) { j.RunAt = time.Now().Add(engine.MaxAhead + time.Second) },
		} {
			job := oneJob(0)
			edit(&job)
			_, err := r.Enqueue(t.Context(), job)
			var wrong *bulk.SpecError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		var wrong *bulk.SpecError
		if _, _, err := r.Create(t.Context(), bulk.Spec{Tenant: "t", Type: "echo", Stream: true}); !errors.As(err, &wrong) || wrong.Field != "stream" {
			t.Errorf("creating a stream: %v", err)
		}
	})
}

func TestEnqueueRunAt(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		job := oneJob(0)
		job.RunAt = time.Now().Add(time.Minute)
		enqueued := r.enqueue(job)
		pass(time.Minute - time.Second)
		if a := r.action(enqueued.Action); a.Status != bulk.Dispatched || a.Total != 1 {
			t.Errorf("a second before its time it is %s, total %d", a.Status, a.Total)
		}
		bulktest.RequireCounts(t, r.finish(enqueued.Action), bulk.Completed, 1, 0)
		job.RunAt = time.Now().Add(-time.Hour)
		if past := r.enqueue(job); !r.action(past.Action).Open {
			t.Error("a job whose time is past is not in a stream")
		}
	})
}

func TestEnqueueUnique(t *testing.T) {
	inVirtualTime(t, bulk.Config{Retention: 5 * time.Minute}, bulk.NewMux(), func(t *testing.T, r *rig) {
		job := oneJob(0)
		job.Unique = "order 17"
		first := r.enqueue(job)
		bulktest.RequireCounts(t, r.finish(first.Action), bulk.Completed, 1, 0)
		job.Payload, job.Class = []byte("1"), bulk.High
		if again := r.enqueue(job); !again.Duplicate || again.Action != first.Action || first.Duplicate {
			t.Errorf("enqueued %+v, then %+v; want a duplicate of the first", first, again)
		}
		job.Tenant = "u"
		if other := r.enqueue(job); other.Duplicate {
			t.Errorf("the key of another tenant: %+v", other)
		}
		job.Tenant, job.UniqueFor = "t", time.Minute
		windowed := r.enqueue(job)
		if windowed.Duplicate || windowed.Action == first.Action {
			t.Errorf("unique for a minute: %+v", windowed)
		}
		pass(time.Minute)
		if next := r.enqueue(job); next.Duplicate {
			t.Errorf("a minute later: %+v", next)
		}
		pass(15 * time.Minute)
		job.UniqueFor = 0
		if late := r.enqueue(job); late.Duplicate || late.Action != first.Action {
			t.Errorf("when the first is forgotten: %+v", late)
		}
	})
}

// TestEnqueueUniqueIsCompleted crashes between the operations: a repeated call completes the
// job, also when the watcher has given up the first one.
func TestEnqueueUniqueIsCompleted(t *testing.T) {
	for operations := range 4 {
		for _, wait := range []time.Duration{0, 61 * time.Second} {
			inVirtualTime(t, bulk.Config{Retention: time.Minute}, bulk.NewMux(), func(t *testing.T, r *rig) {
				crashed, err := engine.New(&crashing{Store: r.Store(), left: operations}, bulk.NewMux(), bulk.Config{})
				if err != nil {
					t.Fatal(err)
				}
				job := oneJob(0)
				job.Unique = "k"
				if _, err := crashed.Enqueue(t.Context(), job); (err == nil) != (operations == 3) {
					t.Fatalf("with %d operations: %v", operations, err)
				}
				pass(wait)
				enqueued := r.enqueue(job)
				bulktest.RequireCounts(t, r.finish(enqueued.Action), bulk.Completed, 1, 0)
			})
		}
	}
}
