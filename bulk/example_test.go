package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// Charge is the payload of the jobs of type "order:charge".
type Charge struct {
	Customer string `json:"customer"`
	Amount   string `json:"amount"` // decimal: sums of it are exact
}

func (Charge) JobType() string { return "order:charge" }

// Charger is the worker of these jobs.
type Charger struct{}

// Work charges one order. The job's id is the same in every attempt.
func (*Charger) Work(_ context.Context, job *bulk.TypedJob[Charge]) (any, error) {
	switch job.Args.Customer {
	case "mallory":
		return nil, fmt.Errorf("the card of %s is blocked: %w", job.Args.Customer, bulk.SkipRetry)
	case "bob":
		if job.Attempt == 1 {
			return nil, errors.New("the bank did not answer")
		}
	}
	return job.Args, nil
}

// example runs f with an engine on an in-memory store; a program uses a directory.
func example(mux *bulk.Mux, f func(ctx context.Context, e *engine.Engine) error) error {
	config := bulk.Config{BackoffBase: 10 * time.Millisecond}
	store, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem(), Bulk: config})
	if err != nil {
		return err
	}
	defer store.Close()
	e, err := engine.New(store, mux, config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := e.Start(ctx); err != nil {
		return err
	}
	return errors.Join(f(ctx, e), e.Stop(ctx))
}

// finished waits for an action and prints its outcome.
func finished(ctx context.Context, e *engine.Engine, action bulk.Action) error {
	err := e.Watch(ctx, action.ID, 5*time.Millisecond, func(a bulk.Action) error { action = a; return nil })
	fmt.Println(action.Status, action.Succeeded, "succeeded", action.Failed, "failed", action.Retried, "retried")
	return err
}

func ExampleAddWorker() {
	mux := bulk.NewMux()
	bulk.AddWorker(mux, &Charger{}, bulk.WithTimeout(time.Minute))

	err := example(mux, func(ctx context.Context, e *engine.Engine) error {
		spec := bulk.Spec{ID: "march", Tenant: "shop", Aggregate: []string{"sum:amount"}}
		action, err := bulk.Insert(ctx, e, spec,
			Charge{"alice", "0.10"}, Charge{"bob", "0.20"}, Charge{"mallory", "99.00"})
		if err != nil {
			return err
		}
		return finished(ctx, e, action)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// COMPLETED 2 succeeded 1 failed 1 retried
}

func ExampleAddWorkFunc() {
	mux := bulk.NewMux()
	bulk.AddWorkFunc(mux, func(_ context.Context, job *bulk.TypedJob[Charge]) (any, error) {
		fmt.Println(job.ID(), "of", job.Spec.Tenant, "charges", job.Args.Customer, job.Args.Amount)
		return nil, nil
	})
	err := example(mux, func(ctx context.Context, e *engine.Engine) error {
		action, err := bulk.Insert(ctx, e, bulk.Spec{ID: "march", Tenant: "shop"}, Charge{"alice", "0.10"})
		if err != nil {
			return err
		}
		return finished(ctx, e, action)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// march-0 of shop charges alice 0.10
	// COMPLETED 1 succeeded 0 failed 0 retried
}

// A hundred thousand jobs that are never in memory at one time. A repeated call with the same
// id, after a crash, continues where it stopped.
func ExampleInsertMany() {
	orders := func(yield func(Charge) bool) {
		for i := range 100_000 {
			if !yield(Charge{fmt.Sprint("customer-", i), "0.01"}) {
				return
			}
		}
	}
	err := example(bulk.NewMux(), func(ctx context.Context, e *engine.Engine) error {
		action, err := bulk.InsertMany(ctx, e, bulk.Spec{ID: "march", Tenant: "shop"}, orders)
		if err != nil {
			return err
		}
		again, err := bulk.InsertMany(ctx, e, bulk.Spec{ID: "march", Tenant: "shop"}, orders)
		fmt.Println(action.Total, again.Total, action.Type)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 100000 100000 order:charge
}

// Rows of a query as jobs: an error of the query leaves the action unsealed, and none of its
// jobs run.
func ExampleInsertFrom() {
	var rows iter.Seq2[Charge, error] = func(yield func(Charge, error) bool) {
		if yield(Charge{"alice", "0.10"}, nil) {
			yield(Charge{}, errors.New("connection reset"))
		}
	}
	err := example(bulk.NewMux(), func(ctx context.Context, e *engine.Engine) error {
		action, err := bulk.InsertFrom(ctx, e, bulk.Spec{ID: "march", Tenant: "shop"}, rows)
		fmt.Println(action.Status, err)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// CREATED the source of action "march", after 1 jobs: connection reset
}

// The same with a server: "sluice serve", or a program that serves package api. Its workers
// run in that server, or are remote.
func ExampleInsert_server() {
	server, err := client.New("http://127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	spec := bulk.Spec{ID: "march", Tenant: "shop"}
	action, err := bulk.Insert(context.Background(), server.Inserter(), spec, Charge{"alice", "0.10"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(action.Status)
}
