package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/client"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
	"github.com/sluice-project/sluice/room/watch"
)

// withServer runs f with the URL of a server; "sluice serve" is one.
func withServer(f func(ctx context.Context, url string) error) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	e, err := engine.New(storetest.NewMemory(), room.Config{}, engine.WithLogger(quiet))
	if err != nil {
		return err
	}
	hub := watch.New(e)
	ctx := context.Background()
	if err := errors.Join(e.Start(ctx), hub.Start(ctx)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hub.Stop(ctx), e.Stop(ctx)) }()
	server := httptest.NewServer(api.New(e, hub, api.WithLogger(quiet)))
	defer server.Close()
	return f(ctx, server.URL)
}

// An app of its own opens a room for one visitor at a time, and asks for two.
func Example() {
	err := withServer(func(ctx context.Context, url string) error {
		c, err := client.New(url)
		if err != nil {
			return err
		}
		if _, _, err := c.PutRoom(ctx, "shop", room.Settings{Mode: room.Teller, Capacity: 1}); err != nil {
			return err
		}
		alice, err := c.Enter(ctx, "shop", "alice")
		if err != nil {
			return err
		}
		bob, err := c.Enter(ctx, "shop", "bob")
		if err != nil {
			return err
		}
		fmt.Println("alice:", alice.Status, "with a pass:", alice.Pass != "")
		fmt.Println("bob:", bob.Status, "at", *bob.Position)

		if err := c.Leave(ctx, "shop", alice.Ticket); err != nil {
			return err
		}
		bob, err = c.Ask(ctx, "shop", bob.Ticket)
		fmt.Println("then bob:", bob.Status)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// alice: inside with a pass: true
	// bob: waiting at 1
	// then bob: inside
}
