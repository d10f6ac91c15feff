package gate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/gate"
	"github.com/sluice-project/sluice/room/storetest"
	"github.com/sluice-project/sluice/room/watch"
)

// Middleware before a program's own pages: one visitor at a time may pay, and the next waits.
func ExampleGate_Middleware() {
	ctx := context.Background()
	e, err := engine.New(storetest.NewMemory(), room.Config{}, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	hub := watch.New(e)
	if err := errors.Join(e.Start(ctx), hub.Start(ctx)); err != nil {
		log.Fatal(err)
	}
	_, _, err = e.PutRoom(ctx, "shop", room.Settings{Mode: room.Teller, Capacity: 1, Routes: []room.Rule{{Path: "/checkout/*"}}})
	if err != nil {
		log.Fatal(err)
	}
	g, err := gate.New(e, hub, gate.Options{Sites: []gate.Site{{Room: "shop", Brand: "Corner shop"}}})
	if err != nil {
		log.Fatal(err)
	}
	shop := g.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the shop serves", r.URL.Path)
	}))
	ask := func(path string, cookies ...*http.Cookie) []*http.Cookie {
		request := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		request.Header.Set("Accept", "application/json") // browsers get the waiting page
		for _, cookie := range cookies {
			request.AddCookie(cookie)
		}
		answer := httptest.NewRecorder()
		shop.ServeHTTP(answer, request)
		fmt.Println(path, answer.Code)
		return answer.Result().Cookies()
	}
	ask("/")
	alice := ask("/checkout/")
	ask("/checkout/", alice...)
	ask("/checkout/") // another visitor waits
	if err := errors.Join(hub.Stop(ctx), e.Stop(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the shop serves /
	// / 200
	// the shop serves /checkout/
	// /checkout/ 200
	// the shop serves /checkout/
	// /checkout/ 200
	// /checkout/ 202
}

// A gate of its own before a shop on another machine: a program in front of any site. The shop sees who is inside.
func ExampleProxy() {
	ctx := context.Background()
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("visitor", r.Header.Get("Sluice-Visitor"), "of", r.Header.Get("Sluice-Room"), "at", r.URL.Path)
	}))
	defer shop.Close()
	e, err := engine.New(storetest.NewMemory(), room.Config{}, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	hub := watch.New(e)
	if err := errors.Join(e.Start(ctx), hub.Start(ctx)); err != nil {
		log.Fatal(err)
	}
	if _, _, err := e.PutRoom(ctx, "shop", room.Settings{Mode: room.Teller, Capacity: 200}); err != nil {
		log.Fatal(err)
	}
	g, err := gate.New(e, hub, gate.Options{Sites: []gate.Site{{Room: "shop"}}})
	if err != nil {
		log.Fatal(err)
	}
	upstream, err := url.Parse(shop.URL)
	if err != nil {
		log.Fatal(err)
	}
	proxy, err := gate.Proxy(upstream, gate.ProxyOptions{Failed: g.Failed})
	if err != nil {
		log.Fatal(err)
	}
	site := g.Middleware(proxy) // the handler of an http.Server

	request := httptest.NewRequest(http.MethodGet, "/shoes", http.NoBody)
	request.Header.Set("Accept", "text/html")
	site.ServeHTTP(httptest.NewRecorder(), request)
	if err := errors.Join(hub.Stop(ctx), e.Stop(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output: visitor 1 of shop at /shoes
}
