package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/gate"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/watch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "127.0.0.1:8000"); err != nil {
		log.Fatal(err)
	}
}

// pages returns the pages of the shop. They use one header of the waiting room and nothing else of
// it.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "welcome, see /checkout/") })
	mux.HandleFunc("GET /checkout/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "your turn to pay: POST /checkout/pay")
	})
	mux.HandleFunc("POST /checkout/pay", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(gate.ReleaseHeader, "pass") // the visit ends here
		_, _ = fmt.Fprintln(w, "thank you")
	})
	return mux
}

// waitingRoom has the services of a waiting room, which are stopped in reverse order.
type waitingRoom struct {
	store  *pebblestore.Store
	engine *engine.Engine
	hub    *watch.Hub
}

// open starts a waiting room on a directory, in front of the shop.
func open(ctx context.Context, dir string, shop http.Handler) (*waitingRoom, http.Handler, error) {
	store, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return nil, nil, err
	}
	w := &waitingRoom{store: store}
	if w.engine, err = engine.New(store, room.Config{}); err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	w.hub = watch.New(w.engine) // the live part of the waiting page
	if err := errors.Join(w.engine.Start(ctx), w.hub.Start(ctx)); err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	_, _, err = w.engine.PutRoom(ctx, "shop", room.Settings{
		Mode: room.Teller, Capacity: 1, PassTTL: time.Minute,
		Routes: []room.Rule{{Path: "/checkout/*"}},
	})
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	guard, err := gate.New(w.engine, w.hub, gate.Options{Sites: []gate.Site{{Room: "shop", Brand: "Corner shop"}}})
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	return w, guard.Middleware(shop), nil
}

// Close stops the waiting room. Visitors keep their places: they are on disk.
func (w *waitingRoom) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(w.hub.Stop(ctx), w.engine.Stop(ctx), w.store.Close())
}

func run(ctx context.Context, address string) (err error) {
	dir, err := os.MkdirTemp("", "sluice-room-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	waiting, handler, err := open(ctx, dir, pages())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // waiting pages are endless streams
	log.Printf("open http://%s/checkout/ in two browsers", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
