package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	bank, closeBank, err := openBank(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBank()) }()
	dir, err := os.MkdirTemp("", "sluice-typed-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	config := bulk.Config{Workers: 1}
	store, err := pebblestore.Open(dir, pebblestore.Options{Bulk: config})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	e, err := engine.New(store, Mux(bank), config) // the config of the store
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()

	action, err := Submit(ctx, e, "march", Charge{"alice", "0.10"}, Charge{"", "99.00"}, Charge{"bob", "12.34"})
	if err != nil {
		return err
	}
	return report(ctx, e, action)
}

// report waits for the end of an action, and prints its results.
func report(ctx context.Context, e *engine.Engine, action bulk.Action) error {
	err := e.Watch(ctx, action.ID, 20*time.Millisecond, func(a bulk.Action) error {
		action = a
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println(action.Status, action.Succeeded, "succeeded", action.Failed, "failed", action.Throttled, "throttled")
	fmt.Printf("count %s, sum %s\n", action.Result["count"], action.Result["sum:amount"])
	letters, err := e.DeadLetters(ctx, action.ID, 0, 100)
	for _, letter := range letters {
		fmt.Println("failed:", bulk.JobID(letter.Action, letter.Index), letter.Error)
	}
	return err
}

// openBank serves a bank on this machine. It throttles the first request and echoes the others.
func openBank(ctx context.Context) (url string, shut func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var requests atomic.Int64
	bank := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 1 {
				http.Error(w, "busy", http.StatusTooManyRequests)
				return
			}
			_, _ = io.Copy(w, r.Body) // the client may have gone
		}),
	}
	served := make(chan error, 1)
	go func() { served <- bank.Serve(listener) }()
	shut = func() error {
		err := bank.Close()
		if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
			err = errors.Join(err, failed)
		}
		return err
	}
	return "http://" + listener.Addr().String(), shut, nil
}
