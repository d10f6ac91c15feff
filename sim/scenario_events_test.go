package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// The power fails twelve times while the jobs of three tenants run, and events go to a log that is
// slow, sometimes fails in the middle of a batch, and is unavailable at times. A consumer that
// drops repeats sees each event once, and those of one action in order.
func TestEventsThroughPowerLoss(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &eventsWorld{t: t, disk: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(seed, 9))}
				w.log = &simLog{random: rand.New(rand.NewPCG(seed, 11)), seen: map[string]bulk.Event{}}
				for range 12 {
					w.run(time.Duration(50+w.random.IntN(3000)) * time.Millisecond)
				}
				w.finish()
			})
		})
	}
}

const (
	eventsTenants = 3
	eventsJobs    = 1500
)

// simLog is a publisher. It keeps events by id, in the order in which each first arrived.
type simLog struct {
	mu      sync.Mutex
	random  *rand.Rand
	well    bool
	seen    map[string]bulk.Event
	order   []string
	repeats int
	changed []string
}

func (l *simLog) Publish(ctx context.Context, events []bulk.Event) error {
	l.mu.Lock()
	wait, taken := time.Duration(l.random.IntN(400))*time.Millisecond, len(events)
	if !l.well && l.random.IntN(3) == 0 {
		taken = l.random.IntN(len(events) + 1)
	}
	l.mu.Unlock()
	if err := pass(ctx, wait); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events[:taken] {
		before, repeated := l.seen[e.ID]
		switch {
		case !repeated:
			l.seen[e.ID] = e
			l.order = append(l.order, e.ID)
		case fmt.Sprint(before) != fmt.Sprint(e):
			l.changed = append(l.changed, e.ID)
		default:
			l.repeats++
		}
	}
	if taken < len(events) {
		return errors.New("the log is not there")
	}
	return nil
}

type eventsWorld struct {
	t      *testing.T
	disk   *vfs.MemFS
	random *rand.Rand
	log    *simLog
}

func (w *eventsWorld) open() (*pebblestore.Store, *engine.Engine) {
	w.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	config := bulk.Config{RequestsPerSecond: 300, Workers: 20, MaxCrashes: 100}
	store, err := pebblestore.Open("data", pebblestore.Options{FS: w.disk, Bulk: config, Logger: quiet})
	if err != nil {
		w.t.Fatal(err)
	}
	mux := bulk.NewMux()
	mux.HandleFunc("call", func(ctx context.Context, job *bulk.Job) ([]byte, error) {
		if err := pass(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
		if job.Index%50 == 0 {
			return nil, bulk.SkipRetry
		}
		return job.Payload, nil
	})
	engine, err := engine.New(store, mux, config, engine.WithLogger(quiet), engine.WithPublisher(w.log))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := engine.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return store, engine
}

// run works for a while; then the power fails. The log keeps the events that it has accepted by
// then.
func (w *eventsWorld) run(d time.Duration) {
	store, engine := w.open()
	for tenant := range eventsTenants {
		w.submit(engine, tenant)
	}
	time.Sleep(d)
	// Under the lock nothing is published between the two.
	w.log.mu.Lock()
	left := w.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.random.IntN(100), RNG: w.random})
	kept := w.log.fork()
	w.log.mu.Unlock()
	if err := errors.Join(engine.Stop(context.Background()), store.Close()); err != nil {
		w.t.Error(err)
	}
	w.disk, w.log = left, kept
}

// fork returns a copy of the log at this moment, without the events that a process publishes after
// its power loss. The caller holds the lock.
func (l *simLog) fork() *simLog {
	c := &simLog{random: l.random, seen: map[string]bulk.Event{}, order: append([]string{}, l.order...), repeats: l.repeats, changed: l.changed}
	l.random = rand.New(rand.NewPCG(1, 2))
	for id, e := range l.seen {
		c.seen[id] = e
	}
	return c
}

func (w *eventsWorld) submit(engine *engine.Engine, tenant int) {
	w.t.Helper()
	ctx, id := context.Background(), fmt.Sprint("action-", tenant)
	spec := bulk.Spec{ID: id, Tenant: "tenant of " + id, Type: "call", Aggregate: []string{"count"}}
	if tenant > 0 {
		spec.Events = []string{bulk.JobEvents}
	}
	action, _, err := engine.Create(ctx, spec)
	if err != nil {
		w.t.Fatal(err)
	}
	if action.Status != bulk.Created {
		return
	}
	payloads := make([][]byte, eventsJobs)
	for i := range payloads {
		payloads[i] = fmt.Append(nil, i)
	}
	if _, err := engine.Append(ctx, id, 0, payloads); err != nil {
		w.t.Fatal(err)
	}
	if _, err := engine.Seal(ctx, id, eventsJobs); err != nil {
		w.t.Fatal(err)
	}
}

// finish lets everything complete and be published, and checks the events.
func (w *eventsWorld) finish() {
	store, engine := w.open()
	w.log.mu.Lock()
	w.log.well = true
	w.log.mu.Unlock()
	for tenant := range eventsTenants {
		id := fmt.Sprint("action-", tenant)
		w.submit(engine, tenant)
		if err := engine.Watch(context.Background(), id, 100*time.Millisecond, func(bulk.Action) error { return nil }); err != nil {
			w.t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	waiting := int64(-1)
	if err := store.Fetch(context.Background(), func(b *bulk.Backlog) { waiting = b.Outbox }); err != nil || waiting != 0 {
		w.t.Errorf("%d events still wait, error %v", waiting, err)
	}
	if err := errors.Join(engine.Stop(context.Background()), store.Close()); err != nil {
		w.t.Error(err)
	}
	if len(w.log.changed) > 0 || w.log.repeats == 0 {
		w.t.Errorf("events %v came again as others, %d as they were; want some repeats, and none that changed", w.log.changed, w.log.repeats)
	}
	for tenant := range eventsTenants {
		w.check(fmt.Sprint("action-", tenant), tenant > 0)
	}
}

// check verifies the events of one action.
func (w *eventsWorld) check(id string, ofJobs bool) {
	w.t.Helper()
	var story []string
	jobs := map[string]string{}
	for _, event := range w.log.order {
		switch e := w.log.seen[event]; {
		case e.Action != id:
		case e.Subject == id:
			story = append(story, strings.TrimPrefix(e.Type, "io.sluice.bulk.action."))
		default:
			if jobs[e.Subject] != "" || len(story) != 3 {
				w.t.Errorf("%s: the event of %s comes after %v, and it had one: %v", id, e.Subject, story, jobs[e.Subject] != "")
			}
			jobs[e.Subject] = e.Type
		}
	}
	if got := strings.Join(story, " "); got != "created dispatched running aggregating completed" {
		w.t.Errorf("%s: %s", id, got)
	}
	want := map[bool]int{true: eventsJobs}[ofJobs]
	if len(jobs) != want {
		w.t.Errorf("%s: events of %d jobs, want %d", id, len(jobs), want)
	}
	for i := range want {
		eventType := bulk.JobSucceeded
		if i%50 == 0 {
			eventType = bulk.JobFailed
		}
		if got := jobs[bulk.JobID(id, int64(i))]; got != eventType {
			w.t.Errorf("job %d of %s has the event %q, want %s", i, id, got, eventType)
		}
	}
}
