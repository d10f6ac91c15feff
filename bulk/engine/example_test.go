package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// A program that runs its own jobs, one enqueued at a time. The same unique key is the same job.
// Programs open a directory instead of a store in memory.
func ExampleNew() {
	ctx, config := context.Background(), bulk.Config{}
	store, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem(), Bulk: config})
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan string)
	mux := bulk.NewMux()
	mux.HandleFunc("email:send", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		ran <- string(job.Payload)
		return nil, nil
	})
	e, err := engine.New(store, mux, config, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Start(ctx); err != nil {
		log.Fatal(err)
	}
	job := engine.NewJob{Tenant: "shop", Type: "email:send", Payload: []byte(`"welcome"`), Unique: "user-17"}
	for range 2 {
		enqueued, err := e.Enqueue(ctx, job)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("enqueued, a duplicate:", enqueued.Duplicate)
	}
	fmt.Println("sent", <-ran)
	if err := errors.Join(e.Stop(ctx), store.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// enqueued, a duplicate: false
	// enqueued, a duplicate: true
	// sent "welcome"
}
