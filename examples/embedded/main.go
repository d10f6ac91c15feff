package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// order is the payload of a job, and its result.
type order struct {
	Customer string `json:"customer"`
	Amount   string `json:"amount"`
}

// charge is the handler. It must be idempotent: after a crash between its return and the record of
// its outcome it runs again for the same order.
func charge(_ context.Context, job *bulk.Job) ([]byte, error) {
	var o order
	if err := json.Unmarshal(job.Payload, &o); err != nil {
		return nil, fmt.Errorf("not an order: %w: %w", err, bulk.SkipRetry) // never retried
	}
	if o.Customer == "mallory" {
		return nil, fmt.Errorf("the card of %s is blocked: %w", o.Customer, bulk.SkipRetry)
	}
	if job.Attempt == 1 && o.Customer == "bob" {
		return nil, errors.New("the bank did not answer") // retried after a backoff
	}
	return json.Marshal(o) // the aggregates read this
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "sluice-embedded-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	// The store and the engine get the same config.
	config := bulk.Config{BackoffBase: 20 * time.Millisecond}
	store, err := pebblestore.Open(dir, pebblestore.Options{Bulk: config})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	mux := bulk.NewMux()
	mux.HandleFunc("order:charge", charge)
	e, err := engine.New(store, mux, config)
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()

	return submit(ctx, e)
}

// submit creates an action, uploads its jobs, seals it, and waits for its end.
func submit(ctx context.Context, e *engine.Engine) error {
	action, _, err := e.Create(ctx, bulk.Spec{
		ID: "march", Tenant: "shop", Type: "order:charge",
		Aggregate: []string{"count", "sum:amount"},
	})
	if err != nil {
		return err
	}
	received, err := e.Append(ctx, action.ID, 0, [][]byte{
		[]byte(`{"customer":"alice","amount":"0.10"}`),
		[]byte(`{"customer":"bob","amount":"0.20"}`),
		[]byte(`{"customer":"mallory","amount":"99.00"}`),
		[]byte(`{"customer":"carol","amount":"12.34"}`),
	})
	if err != nil {
		return err
	}
	if _, err := e.Seal(ctx, action.ID, received); err != nil {
		return err
	}
	err = e.Watch(ctx, action.ID, 20*time.Millisecond, func(a bulk.Action) error {
		action = a
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println(action.Status, action.Succeeded, "succeeded", action.Failed, "failed", action.Retried, "retried")
	fmt.Printf("count %s, sum %s\n", action.Result["count"], action.Result["sum:amount"])
	letters, err := e.DeadLetters(ctx, action.ID, 0, 100)
	for _, letter := range letters {
		fmt.Println("failed:", bulk.JobID(letter.Action, letter.Index), letter.Error)
	}
	return err
}
