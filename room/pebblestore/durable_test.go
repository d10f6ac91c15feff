package pebblestore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/storetest"
)

// While the entry of a visitor with a key is not durable, another call with the key does not get
// that place: after a power loss the number would be another visitor's.
func TestAPlaceIsToldByItsKeyWhenItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowShop(t)
		enter := func() room.Place {
			p, err := c.s.Enter(ctx, c.terms, room.Arrival{Key: room.Key{1}})
			if err != nil {
				t.Error(err)
			}
			return p
		}
		release := c.disk.hold()
		first := c.begin(enter)
		again := c.begin(enter)
		c.pending("that one entered", first)
		c.pending("the place of its key", again)
		release()
		if a, b := <-first, <-again; a.Number != 5 || b.Number != 5 || !a.New || b.New {
			t.Errorf("entered as %+v, and again as %+v", a, b)
		}
		release = c.disk.hold()
		if p := c.begin(enter); len(p) == 0 {
			t.Error("one who entered long ago enters again, which changes nothing on disk, and waits for it")
		}
		release()
	})
}

// While the departure of a visitor with a key is not durable, no answer says that the key has no
// place.
func TestThatAKeyHasNoPlaceIsToldWhenItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowShop(t)
		p, err := c.s.Enter(ctx, c.terms, room.Arrival{Key: room.Key{1}})
		if err != nil {
			t.Fatal(err)
		}
		release := c.disk.hold()
		leaving := c.begin(func() room.Place {
			p, err := c.s.Leave(ctx, c.terms, room.Bearer{Number: p.Number}, room.Left)
			if err != nil {
				t.Error(err)
			}
			return p
		})
		finding := c.begin(func() room.Place {
			number, err := c.s.Find(ctx, c.terms, room.Key{1})
			if err != nil {
				t.Error(err)
			}
			return room.Place{Number: number}
		})
		c.pending("that the key has no place", finding)
		release()
		<-leaving
		if p := <-finding; p.Number != 0 {
			t.Errorf("found %d, who has left", p.Number)
		}
	})
}

// After an fsync that many wait for, the next one is put off until more share it; after one that few
// wait for it follows at once.
func TestACrowdSharesFsyncs(t *testing.T) {
	for entering, putOff := range map[int]bool{2: false, 100: true} {
		synctest.Test(t, func(t *testing.T) {
			c := newSlowShop(t)
			release := c.disk.hold()
			var all []chan room.Place
			for range entering {
				all = append(all, c.begin(func() room.Place {
					p, err := c.s.Enter(ctx, c.terms, room.Arrival{})
					if err != nil {
						t.Error(err)
					}
					return p
				}))
			}
			release()
			synctest.Wait()
			if len(all[0]) == 0 || (len(all[entering-1]) == 0) != putOff {
				t.Errorf("of %d who enter, the first is told %t, the last %t", entering, len(all[0]) > 0, len(all[entering-1]) > 0)
			}
			for _, told := range all {
				<-told
			}
		})
	}
}

// A clock that is set forward, and corrected while the store is closed, makes no visit longer, and
// delays no batch.
func TestClockSetForwardAndCorrected(t *testing.T) {
	disk := vfs.NewMem()
	var terms room.Terms
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour) // the clock is wrong by a day
		s := open(t, disk)
		terms = shop(t, s)
		terms.Capacity = 3
		for range 2 {
			if _, err := s.Enter(ctx, terms, room.Arrival{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Enter(ctx, terms, room.Arrival{Provisional: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if _, err := s.Ask(ctx, terms, storetest.Bearers(2), false); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 { // time begins again
		synctest.Test(t, func(t *testing.T) {
			s := open(t, disk)
			places, err := s.Ask(ctx, terms, storetest.Bearers(1, 2, 3), false)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range places {
				if left := p.Until.Sub(p.Now); left > terms.TTL || p.Since.After(p.Now) {
					t.Errorf("visitor %d may stay for %v, since %v", i+1, left, p.Since.Sub(p.Now))
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
