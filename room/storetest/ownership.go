package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

var ownershipCases = []testCase{
	{name: "a name has one holder at a time", run: func(k *kit) {
		k.leases("publisher", "a", time.Minute, true)
		k.leases("publisher", "b", time.Minute, false)
		k.leases("other", "b", time.Minute, true)
		k.leases("other", "a", time.Minute, false)
		k.leases("publisher", "a", time.Minute, true)
	}},
	{name: "it is free after its time", run: func(k *kit) {
		k.leases("publisher", "a", time.Minute, true)
		k.advance(30 * time.Second)
		k.leases("publisher", "b", time.Minute, false)
		k.advance(50 * time.Second)
		k.leases("publisher", "b", time.Minute, true)
		k.leases("publisher", "a", time.Minute, false)
	}},
	{name: "the holder has it for longer by asking again", run: func(k *kit) {
		for range 4 {
			k.leases("publisher", "a", time.Minute, true)
			k.advance(40 * time.Second)
			k.leases("publisher", "b", time.Minute, false)
		}
		k.leases("publisher", "a", 5*time.Second, true) // also for a shorter time
		k.advance(30 * time.Second)
		k.leases("publisher", "b", time.Minute, true)
	}},
	{name: "only the holder gives it back", run: func(k *kit) {
		k.leases("publisher", "a", time.Minute, true)
		k.leases("publisher", "b", 0, false)
		k.leases("publisher", "b", time.Minute, false)
		k.leases("publisher", "a", 0, true)
		k.leases("publisher", "b", time.Minute, true)
		k.leases("publisher", "a", time.Minute, false)
		k.leases("nobody's", "a", 0, true)
		k.leases("nobody's", "b", time.Minute, true)
	}},
}

func (k *kit) leases(name, holder string, ttl time.Duration, want bool) {
	k.t.Helper()
	got, err := k.store.Own(ctx, name, holder, ttl)
	k.must(err)
	k.check(got == want, "%s has %s: %v, want %v", holder, name, got, want)
}

// ownershipCrowd lets many claim one name concurrently.
func ownershipCrowd(k *kit) {
	for round := range 10 {
		var holders atomic.Int64
		k.work(6, func(worker int) error {
			got, err := k.store.Own(ctx, "one", fmt.Sprintf("%d of %d", worker, round), time.Minute)
			if got {
				holders.Add(1)
			}
			return err
		})
		k.check(holders.Load() == 1, "%d hold the name, want 1", holders.Load())
		k.advance(time.Minute + 10*time.Second)
	}
	k.must(k.store.Close())
	_, err := k.store.Own(ctx, "one", "late", time.Minute)
	k.is(err, room.ErrClosed)
}
