package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/redistest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
)

// until waits for a condition, for a minute at most.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline, again := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("it never came to this: %s", what)
		case <-again.C:
		}
	}
}

func TestAReplicaTakesOver(t *testing.T) {
	master := redistest.Start(t, redistest.Options{})
	_, port := master.HostPort()
	replica := redistest.Start(t, redistest.Options{Args: []string{"--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay", "0"}})
	until(t, "the replica is connected", func() bool { return info(t, master, "connected_slaves") == 1 })
	sentinel := redistest.Start(t, redistest.Options{
		Config: fmt.Sprintf("sentinel monitor shops 127.0.0.1 %s 1\nsentinel down-after-milliseconds shops 500\n", port),
		Args:   []string{"--sentinel"},
	})
	store := open(t, redisstore.Options{URL: sentinel.URL() + "?master_set=shops"})
	terms := room.Terms{Room: "shop", MaxWaiting: 100, Abandon: time.Hour, Away: time.Minute}
	var err error
	if terms.Revision, err = store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	fill(t, store, terms, 10, false)
	until(t, "the replica has all", func() bool { return replica.Cli("HGET", "sluice:{shop}", "number") == "10" })
	until(t, "the sentinel knows the replica", func() bool { return sentinel.Cli("SENTINEL", "REPLICAS", "shops") != "" })

	master.Kill()
	recovered(t, func() error {
		places, err := store.Ask(t.Context(), terms, []int64{10}, true)
		if err == nil && (places[0].State != room.Waiting || places[0].Ahead != 9) {
			t.Errorf("after the failover the place is %+v", places[0])
		}
		return err
	})
	if p, err := store.Enter(t.Context(), terms, room.Arrival{}); err != nil || p.Number != 11 {
		t.Errorf("entering after the failover: %+v, %v", p, err)
	}
}
