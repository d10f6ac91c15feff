package engine_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// A program with a room of its own: one visitor is inside, and the next waits. Programs use
// pebblestore.Open or redisstore.Open instead of a store in memory.
func ExampleNew() {
	ctx := context.Background()
	e, err := engine.New(storetest.NewMemory(), room.Config{}, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Start(ctx); err != nil {
		log.Fatal(err)
	}
	_, _, err = e.PutRoom(ctx, "shop", room.Settings{Mode: room.Teller, Capacity: 1, PassTTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"alice", "bob"} {
		answer, err := e.Enter(ctx, "shop", room.Visit{Key: name})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, "is", answer.State)
	}
	if err := e.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// alice is inside
	// bob is waiting
}
