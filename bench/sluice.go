package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// jobType is the type of all jobs.
const jobType = "no-op"

// sluiceQueue is bulk embedded in this process, with its defaults except the global limit, which is
// off.
type sluiceQueue struct {
	store bulk.Store
	// release removes the store's data.
	release func() error
	engine  *engine.Engine
	started bool
	// received has, for each producer, the number of jobs of its action; only that producer
	// accesses it.
	received []int64
	// handled counts the calls of the handler.
	handled atomic.Int64
}

// sluiceConfig is the config of the store and the engine.
var sluiceConfig = bulk.Config{RequestsPerSecond: -1}.WithDefaults()

// quiet drops the logs of sluice and river.
var quiet = slog.New(slog.DiscardHandler)

// openSluice opens a queue on the embedded store, below a folder. Every append is
// fsynced.
func openSluice(ctx context.Context, folder string, workload Workload) (*sluiceQueue, error) {
	folder, err := os.MkdirTemp(folder, "sluice-")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(folder) }
	store, err := pebblestore.Open(folder, pebblestore.Options{Bulk: sluiceConfig, Logger: quiet})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return newSluiceQueue(ctx, store, remove, workload)
}

// newSluiceQueue creates a queue on an empty store, which it closes at the end.
func newSluiceQueue(ctx context.Context, store bulk.Store, release func() error, workload Workload) (_ *sluiceQueue, err error) {
	q := &sluiceQueue{store: store, release: release, received: make([]int64, workload.Tenants)}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	mux := bulk.NewMux()
	mux.HandleFunc(jobType, func(context.Context, *bulk.Job) ([]byte, error) {
		q.handled.Add(1)
		return nil, nil
	})
	if q.engine, err = engine.New(q.store, mux, sluiceConfig, engine.WithLogger(quiet)); err != nil {
		return nil, err
	}
	for tenant := range workload.Tenants {
		if err := q.addTenant(ctx, tenant, workload.Rate); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func actionOf(tenant int) string { return fmt.Sprint("action-", tenant) }

func (q *sluiceQueue) addTenant(ctx context.Context, tenant, rate int) error {
	name := fmt.Sprint("tenant-", tenant)
	if rate > 0 {
		limit := bulk.Tenant{RequestsPerSecond: float64(rate)}.WithDefaults()
		if err := q.engine.Set(ctx, bulk.SettingsChange{Name: name, Tenant: &limit}); err != nil {
			return err
		}
	}
	_, _, err := q.engine.Create(ctx, bulk.Spec{ID: actionOf(tenant), Tenant: name, Type: jobType})
	return err
}

func (q *sluiceQueue) Enqueue(ctx context.Context, producer int, payloads [][]byte) (err error) {
	q.received[producer], err = q.engine.Append(ctx, actionOf(producer), q.received[producer], payloads)
	return err
}

// EnqueueOne enqueues into the stream of the first tenant.
func (q *sluiceQueue) EnqueueOne(ctx context.Context, payload []byte) error {
	_, err := q.engine.Enqueue(ctx, engine.NewJob{Tenant: "tenant-0", Type: jobType, Payload: payload})
	return err
}

func (q *sluiceQueue) Waiting(ctx context.Context) (int, error) {
	waiting := int64(0)
	actions, err := q.engine.Actions(ctx, bulk.ActionFilter{})
	for i := range actions {
		waiting += actions[i].Received
	}
	return int(waiting), err
}

// start seals the actions, so that their jobs wait, and starts the engine.
func (q *sluiceQueue) start(ctx context.Context) error {
	for tenant, received := range q.received {
		if _, err := q.engine.Seal(ctx, actionOf(tenant), received); err != nil {
			return err
		}
	}
	if err := q.engine.Start(ctx); err != nil {
		return err
	}
	q.started = true
	return nil
}

func (q *sluiceQueue) Work(ctx context.Context, jobs int) (worked Worked, err error) {
	if err := q.start(ctx); err != nil {
		return worked, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-q.engine.Failed():
			stop(q.engine.Err())
		case <-ctx.Done():
		}
	}()
	var wait sync.WaitGroup
	finished := make([]bulk.Action, len(q.received))
	for tenant := range finished {
		wait.Go(func() {
			watch := func(a bulk.Action) error { finished[tenant] = a; return nil }
			if err := q.engine.Watch(ctx, actionOf(tenant), 5*time.Millisecond, watch); err != nil {
				stop(err)
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return worked, context.Cause(ctx)
	}
	return q.count(finished, jobs)
}

// count sums the actions up; all jobs must have run and succeeded.
func (q *sluiceQueue) count(actions []bulk.Action, jobs int) (worked Worked, err error) {
	var succeeded int64
	for _, a := range actions {
		succeeded += a.Succeeded
		worked.Throttled += a.Throttled
	}
	return worked, errors.Join(checkDone(int(succeeded), jobs), checkDone(int(q.handled.Load()), jobs))
}

func (q *sluiceQueue) Close() error {
	var errs []error
	if q.started {
		errs = append(errs, q.engine.Stop(context.Background()))
	}
	errs = append(errs, q.store.Close(), q.release())
	return errors.Join(errs...)
}

// checkDone returns an error unless a run did exactly the enqueued jobs.
func checkDone(done, jobs int) error {
	if done != jobs {
		return fmt.Errorf("%d of %d jobs done: a result without all of them says nothing", done, jobs)
	}
	return nil
}
