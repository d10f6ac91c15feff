package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/gate"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/watch"
)

// The rooms of the demo.
const (
	demoShopRoom = "shop"
	demoRideRoom = "ride"
)

// demoShop is the upstream of the gates. It counts its requests.
type demoShop struct{ requests, withoutPass atomic.Int64 }

// ServeHTTP implements http.Handler.
func (s *demoShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if r.Header.Get(gate.PassHeader) == "" {
		s.withoutPass.Add(1)
	}
	if r.URL.Path == "/paid" {
		w.Header().Set(gate.ReleaseHeader, "pass")
	}
	_, _ = io.WriteString(w, "welcome\n") // An error means that the client is gone.
}

// demoRooms are the rooms of the demo: an engine on a store of its own, and a gate
// for each in front of the shop.
type demoRooms struct {
	*engine.Engine
	hub     *watch.Hub
	store   *pebblestore.Store
	shop    demoShop
	log     *slog.Logger
	gates   map[string]string // their URLs
	started []lifecycle.Service
}

// openDemoRooms starts the gates; the rooms are created later. The shop's gate listens
// at an address, or at the next free port.
func openDemoRooms(ctx context.Context, dir, address string, publisher engine.Publisher, log *slog.Logger) (_ *demoRooms, err error) {
	r := &demoRooms{log: log, gates: map[string]string{}}
	if r.store, err = pebblestore.Open(filepath.Join(dir, "room"), pebblestore.Options{Logger: log, DiskReserve: local.DiskReserve}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.Engine, err = engine.New(r.store, room.Config{}, engine.WithLogger(log), engine.WithPublisher(publisher)); err != nil {
		return nil, err
	}
	r.hub = watch.New(r.Engine)
	for _, service := range []lifecycle.Service{r.Engine, r.hub} {
		if err := r.start(ctx, service); err != nil {
			return nil, err
		}
	}
	shop := ops.NewFront(ops.Options{Addr: "127.0.0.1:0", Name: "shop", Logger: log}, &r.shop)
	if err := r.start(ctx, shop); err != nil {
		return nil, err
	}
	behind, err := url.Parse("http://" + shop.Addr().String())
	if err != nil {
		return nil, err
	}
	for name, address := range map[string]string{demoShopRoom: address, demoRideRoom: "127.0.0.1:0"} {
		err := local.FirstFree(ctx, address, func(address string) error { return r.openGate(ctx, name, address, behind) })
		if err != nil {
			return nil, fmt.Errorf("the gate of %s: %w", name, err)
		}
	}
	return r, nil
}

func (r *demoRooms) start(ctx context.Context, service lifecycle.Service) error {
	if err := service.Start(ctx); err != nil {
		return err
	}
	r.started = append(r.started, service)
	return nil
}

func (r *demoRooms) openGate(ctx context.Context, name, address string, behind *url.URL) error {
	guard, err := gate.New(r.Engine, r.hub, gate.Options{Sites: []gate.Site{{Room: name}}, Logger: r.log})
	if err != nil {
		return err
	}
	proxy, err := gate.Proxy(behind, gate.ProxyOptions{Failed: guard.Failed, Logger: r.log})
	if err != nil {
		return err
	}
	front := ops.NewFront(ops.Options{Addr: address, Name: "gate of " + name, Logger: r.log}, guard.Middleware(proxy))
	if err := r.start(ctx, front); err != nil {
		return err
	}
	r.gates[name] = "http://" + front.Addr().String()
	return nil
}

// mount serves the API of the rooms.
func (r *demoRooms) mount(server *ops.Server) {
	api.Register(server.API(), r.Engine, r.hub, api.WithLogger(r.log))
	server.Registry().MustRegister(r.Engine.Collector(), r.hub.Collector())
}

// Close stops all services in reverse order.
func (r *demoRooms) Close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), local.DrainGrace)
	defer cancel()
	for _, service := range slices.Backward(r.started) {
		err = errors.Join(err, service.Stop(ctx))
	}
	return errors.Join(err, r.store.Close())
}
