package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// withServer runs f with the URL of a server; "sluice serve" is one.
func withServer(f func(ctx context.Context, url string) error) (err error) {
	store, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	quiet := slog.New(slog.DiscardHandler)
	e, err := engine.New(store, bulk.NewMux(), bulk.Config{}, engine.WithLogger(quiet))
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := e.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()
	server := httptest.NewServer(api.New(e, api.WithLogger(quiet)))
	defer server.Close()
	return f(ctx, server.URL)
}

// A worker of a server elsewhere: its handlers would run in an engine of this process just so.
func Example() {
	mux, greeted := bulk.NewMux(), make(chan struct{}, 2)
	bulk.AddWorkFunc(mux, func(_ context.Context, job *bulk.TypedJob[greeting]) (any, error) {
		fmt.Println(job.ID(), "greets", job.Args.Name)
		greeted <- struct{}{}
		return nil, nil
	})
	err := withServer(func(ctx context.Context, url string) error {
		c, err := client.New(url)
		if err != nil {
			return err
		}
		action, err := bulk.Insert(ctx, c.Inserter(), bulk.Spec{ID: "monday", Tenant: "shop"}, greeting{"alice"}, greeting{"bob"})
		if err != nil {
			return err
		}
		working, stop := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		go func() { stopped <- c.NewWorker(mux, client.WorkerOptions{Concurrency: 1}).Run(working) }()
		<-greeted
		<-greeted
		stop() // Run returns when the outcomes are reported
		if err := <-stopped; err != nil {
			return err
		}
		now, err := c.Action(ctx, action.ID)
		fmt.Println(now.Succeeded, "succeeded")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// monday-0 greets alice
	// monday-1 greets bob
	// 2 succeeded
}

// greeting is the payload of the jobs of type "greet".
type greeting struct {
	Name string `json:"name"`
}

func (greeting) JobType() string { return "greet" }
