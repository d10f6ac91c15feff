package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/room"
)

// An owner may have as many rooms as the quota says, those of before a restart included, and change them. Rooms that are removed make
// room for others; rooms of others, and of nobody, do not count.
func TestOwnersHaveQuotas(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		ada := room.Owner{Name: "ada", Most: 2}
		put := func(by room.Owner, name string) error {
			_, _, err := r.PutRoomOf(ctx, by, name, teller(1))
			return err
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		refused := func(err error) {
			t.Helper()
			if quota, is := errors.AsType[*room.QuotaError](err); !is || quota.Has != 2 || !strings.Contains(err.Error(), "ada has 2 rooms, and one more would exceed max_rooms, 2") {
				t.Errorf("%v, want a *room.QuotaError of 2 rooms", err)
			}
		}
		r.put("nobodys", teller(1))
		must(errors.Join(put(ada, "a"), put(room.Owner{Name: "bob"}, "b"), put(room.Owner{Name: "cleo", Most: 1}, "c"), put(ada, "d")))
		refused(put(ada, "e"))
		must(errors.Join(put(ada, "a"), put(ada, "b"), put(room.Owner{Name: "bob", Most: 1}, "a"))) // changes: the owner stays
		second := newRig(t, r.store)
		must(second.DeleteRoom(ctx, "d"))
		must(put(ada, "e")) // at once, though another instance has removed the room
		second.stop()
		*r = *r.restarted()
		refused(put(ada, "f"))
	})
}

// Instances that create rooms for an owner at the same time do not exceed the quota, and leave nothing of it unused.
func TestQuotasAreExactOverInstances(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		const most, each = 7, 5
		instances := []*rig{r, newRig(t, r.store), newRig(t, r.store)}
		var all sync.WaitGroup
		for i, instance := range instances {
			for j := range each {
				all.Go(func() {
					_, _, err := instance.PutRoomOf(ctx, room.Owner{Name: "ada", Most: most}, fmt.Sprintf("of-%d-%d", i, j), teller(1))
					if _, is := errors.AsType[*room.QuotaError](err); err != nil && !is {
						t.Error(err)
					}
				})
				all.Go(func() { // others' changes conflict too
					if _, _, err := instance.PutRoom(ctx, fmt.Sprintf("other-%d-%d", i, j), teller(1)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		made := 0
		views, _, err := r.Rooms(ctx, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, view := range views {
			if view.Room.Owner == "ada" {
				made++
			}
		}
		if made != most || len(views) != most+len(instances)*each {
			t.Errorf("%d rooms of ada of %d, want %d", made, len(views), most)
		}
		for _, instance := range instances[1:] {
			instance.stop()
		}
	})
}
