//go:build redis

package redisstore_test

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/storetest"
)

func TestAReplicaTakesOver(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, redistest.SentinelOptions{})
	store := open(t, redisstore.Options{URL: set.URL()})
	terms := room.Terms{Room: "shop", MaxWaiting: 100, Abandon: time.Hour, Away: time.Minute}
	var err error
	if terms.Revision, err = store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	fill(t, store, terms, 10, false)
	replica := set.Servers()[1]
	until.True(t, "the replica has all", func() bool { return replica.Cli("HGET", "sluice:{shop}", "number") == "10" })

	set.Failover()
	recovered(t, func() error {
		places, err := store.Ask(t.Context(), terms, storetest.Bearers(10), true)
		if err == nil && (places[0].State != room.Waiting || places[0].Ahead != 9) {
			t.Errorf("after the failover the place is %+v", places[0])
		}
		return err
	})
	tries := int64(0)
	recovered(t, func() error { // another call may fail once more, and take effect
		tries++
		p, err := store.Enter(t.Context(), terms, room.Arrival{})
		if err == nil && (p.Number < 11 || p.Number > 10+tries) {
			t.Errorf("entering after the failover, in try %d: %+v", tries, p)
		}
		return err
	})
}
