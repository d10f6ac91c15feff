package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/share"
	"github.com/sluice-project/sluice/topic/storetest"
	"github.com/sluice-project/sluice/topic/txn"
)

// fromStart is a config in which share groups begin at the first record.
var fromStart = topic.Config{Shares: topic.SharesConfig{Earliest: true, Deliveries: 2, Records: 100}}

// joinShare adds a member to the share group "g".
func joinShare(t *testing.T, b *broker.Broker, member string, topics ...string) {
	t.Helper()
	_, err := b.Groups().ConsumerHeartbeat(group.ConsumerHeartbeat{Group: "g", Member: member, Share: true, Topics: topics}).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
}

// sharer is a member of the share group "g" that reads a partition.
type sharer struct {
	t    *testing.T
	name string
	*broker.Share
}

func newSharer(t *testing.T, of *broker.Topic, name string) *sharer {
	t.Helper()
	s, err := of.Share(t.Context(), 0, "g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &sharer{t, name, s}
}

// get acquires records and returns their values, with the count of deliveries if it is not the first.
func (s *sharer) get(most int) (values []string) {
	s.t.Helper()
	for {
		got, err := s.Acquire(s.t.Context(), s.name, broker.ShareMost{Bytes: 1 << 20, Records: most, Strict: true})
		if err == nil {
			err = s.Await(s.t.Context(), got.Version)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if len(got.Deliveries) == 0 && got.More {
			continue
		}
		offsets, all := valuesOf(s.t, got.Data...)
		for i, offset := range offsets {
			all[i] = strings.TrimRight(all[i], " \x00") // of put
			for _, d := range got.Deliveries {
				switch {
				case offset < d.First || offset > d.Last:
				case d.Count > 1:
					values = append(values, fmt.Sprint(all[i], "*", d.Count))
				default:
					values = append(values, all[i])
				}
			}
		}
		return values
	}
}

func (s *sharer) say(kind share.Kind, first, last int64) error {
	version, err := s.Acknowledge(s.name, []share.Acknowledgement{{First: first, Last: last, Kinds: []share.Kind{kind}}})
	if err == nil {
		err = s.Await(s.t.Context(), version)
	}
	return err
}

func (s *sharer) mustSay(kind share.Kind, first, last int64) {
	s.t.Helper()
	if err := s.say(kind, first, last); err != nil {
		s.t.Fatal(err)
	}
}

func wantValues(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q; want %q", what, got, want)
	}
}

// Records go to one member each, again to others if they are not settled, and survive restarts.
func TestShareGroupOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, fromStart)
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "a", "b", "c"), batchOf(anybody, now(), "d", "e"))
		joinShare(t, b, "x", "orders")
		x, y := newSharer(t, orders, "x"), newSharer(t, orders, "y")
		wantValues(t, "x, of one batch", x.get(2), "a", "b")
		wantValues(t, "y, of two", y.get(2), "c", "d")
		if err := y.say(share.Accept, 1, 2); !errors.Is(err, share.ErrState) {
			t.Errorf("an acknowledgement of another's record: %v", err)
		}
		x.mustSay(share.Accept, 0, 0)
		x.mustSay(share.Release, 1, 1)
		wantValues(t, "y, one that was released", y.get(1), "b*2")
		y.mustSay(share.Accept, 2, 2)

		stopBroker(t, b)
		b = startBroker(t, store.Reopen(), fromStart)
		orders, err := b.Topic("orders")
		if err != nil {
			t.Fatal(err)
		}
		x = newSharer(t, orders, "x")
		wantValues(t, "after a restart", x.get(10), "d*2", "e") // b was delivered twice
		x.mustSay(share.Reject, 3, 3)
		x.mustSay(share.Accept, 4, 4)
		wantValues(t, "when all are done", x.get(10))
	})
}

// A lock ends by itself, at its renewed time, and when the member goes.
func TestShareLocksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := fromStart
		config.Shares.Deliveries = 5
		b := startBroker(t, storetest.NewMemory(), config)
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "a", "b"))
		joinShare(t, b, "x", "orders")
		x, y := newSharer(t, orders, "x"), newSharer(t, orders, "y")
		wantValues(t, "x", x.get(2), "a", "b")
		time.Sleep(20 * time.Second)
		x.mustSay(share.Renew, 0, 0)
		got, err := y.Acquire(t.Context(), "y", broker.ShareMost{Bytes: 1000, Records: 5})
		if err != nil || got.More || len(got.Deliveries) > 0 || time.Until(got.Next) != 10*time.Second {
			t.Fatalf("y, before a lock has ended: %+v, %v", got, err)
		}
		time.Sleep(10 * time.Second)
		wantValues(t, "y, after the lock of one", y.get(5), "b*2")
		if err := x.say(share.Accept, 1, 1); !errors.Is(err, share.ErrState) {
			t.Errorf("an acknowledgement after the lock has ended: %v", err)
		}
		signalled := make(chan struct{}, 10)
		defer y.Watch(func() { signalled <- struct{}{} })()
		x.Release("x")
		<-signalled
		wantValues(t, "y, after x has gone", y.get(5), "a*2")
	})
}

// Markers, aborted records and records of open transactions are not delivered, and the window moves over them.
func TestShareGroupsReadWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), fromStart)
		orders := create(t, b, "orders", nil)
		joinShare(t, b, "x", "orders")
		x := newSharer(t, orders, "x")
		var open txn.Producer
		for _, value := range []string{"aborted", "committed", "open"} {
			open = transacted(t, b, orders, value, put("key", value))
			if value == "open" {
				break
			}
			if err := b.Transactions().End(t.Context(), value, open, value == "committed"); err != nil {
				t.Fatal(err)
			}
		}
		send(t, orders, batchOf(anybody, now(), "after"))
		wantValues(t, "before the last has ended", x.get(5), "committed")
		x.mustSay(share.Accept, 2, 2)
		if err := b.Transactions().End(t.Context(), "open", open, true); err != nil {
			t.Fatal(err)
		}
		wantValues(t, "when all have ended", x.get(5), "open", "after")
		x.mustSay(share.Accept, 4, 5)
	})
}

// A leader that was deposed changes nothing, and the windows of a topic go with it.
func TestShareWindowsAreFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, fromStart)
		orders := create(t, b, "orders", nil)
		if _, err := orders.Share(t.Context(), 0, "g"); !errors.Is(err, group.ErrNoGroup) {
			t.Fatalf("without a group: %v", err)
		}
		send(t, orders, batchOf(anybody, now(), "a", "b"))
		joinShare(t, b, "x", "orders")
		x := newSharer(t, orders, "x")
		wantValues(t, "x", x.get(1), "a")
		key := share.Key(orders.ID(), 0, "g")
		item, err := store.Meta().Get(t.Context(), key)
		if err == nil {
			_, err = store.Meta().Put(t.Context(), key, item.Value, item.Revision) // as another leader does
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := x.say(share.Accept, 0, 0); !errors.Is(err, topic.ErrRetry) {
			t.Fatalf("an acknowledgement to a deposed leader: %v", err)
		}
		x = newSharer(t, orders, "x")
		wantValues(t, "from the window that is stored", x.get(5), "a*2", "b")

		if err := b.Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if left, err := store.Meta().List(t.Context(), share.Prefix); err != nil || len(left) > 0 {
			t.Errorf("windows of a deleted topic: %v, %v", left, err)
		}
	})
}

// A record that was released, or whose lock has ended, is delivered again after a backoff that doubles, and not earlier after
// a restart.
func TestShareGroupBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := fromStart
		config.Shares.Deliveries = 5
		store := storetest.NewMemory()
		b, err := broker.New(store, config)
		if err == nil {
			err = b.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "a", "b"))
		alterShare(t, b, "sluice.share.retry.backoff.ms", "10000", "sluice.share.retry.backoff.max.ms", "30000")
		joinShare(t, b, "x", "orders")
		x := newSharer(t, orders, "x")
		wantValues(t, "at first", x.get(1), "a")
		x.mustSay(share.Release, 0, 0)
		wantValues(t, "in the meantime, another", x.get(2), "b")
		x.mustSay(share.Accept, 1, 1)
		for delivery, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			got, err := x.Acquire(t.Context(), "x", broker.ShareMost{Bytes: 1000, Records: 5})
			if err != nil || len(got.Deliveries) > 0 || time.Until(got.Next) != wait {
				t.Fatalf("after delivery %d: %+v in %v, %v; want it in %v", delivery+1, got.Deliveries, time.Until(got.Next), err, wait)
			}
			time.Sleep(wait)
			wantValues(t, "after the backoff", x.get(2), fmt.Sprint("a*", delivery+2))
			if delivery == 1 {
				time.Sleep(30 * time.Second) // the lock ends
				continue
			}
			x.mustSay(share.Release, 0, 0)
		}
		time.Sleep(20 * time.Second)

		stopBroker(t, b)
		b = startBroker(t, store.Reopen(), config)
		if orders, err = b.Topic("orders"); err != nil {
			t.Fatal(err)
		}
		x = newSharer(t, orders, "x")
		wantValues(t, "after a restart", x.get(1))
		time.Sleep(10 * time.Second)
		wantValues(t, "10 s later", x.get(1), "a*5")
	})
}

// slowWindows is a store whose writes of windows wait for the test, while it says so.
type slowWindows struct {
	topic.Store
	slow        atomic.Bool
	begun, done chan struct{}
}

func (s *slowWindows) Meta() topic.Meta { return slowMeta{s.Store.Meta(), s} }

type slowMeta struct {
	topic.Meta
	of *slowWindows
}

func (m slowMeta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	if strings.HasPrefix(key, share.Prefix) && m.of.slow.Load() {
		m.of.begun <- struct{}{}
		<-m.of.done
	}
	return m.Meta.Put(ctx, key, value, revision, guards...)
}

// Changes of a window during a write are in the next one, all of them, and nothing is written that nobody awaits.
func TestShareWritesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowWindows{Store: storetest.NewMemory(), begun: make(chan struct{}, 5), done: make(chan struct{})}
		b := startBroker(t, store, fromStart)
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "a", "b", "c", "d", "e"))
		joinShare(t, b, "x", "orders")
		x := newSharer(t, orders, "x")
		wantValues(t, "x", x.get(4), "a", "b", "c", "d")
		store.slow.Store(true)
		said := make(chan error, 4)
		for offset := range int64(4) {
			go func() { said <- x.say(share.Accept, offset, offset) }()
			if offset == 0 {
				<-store.begun
			}
		}
		synctest.Wait()
		for answers, changes := range []int{1, 3} {
			if answers == 1 { // during the second write something changes that nobody awaits
				<-store.begun
				if got, err := x.Acquire(t.Context(), "x", broker.ShareMost{Bytes: 1000, Records: 1}); err != nil || len(got.Deliveries) != 1 {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			store.done <- struct{}{}
			for range changes {
				if err := <-said; err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		if len(store.begun) > 0 {
			t.Error("the window is written although nobody awaits that")
		}
		store.slow.Store(false)
	})
}

// Settings of a group count from the next read on, over changes, a reset, and more groups than are remembered.
func TestShareSettingsAreReadEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		want := func(name string, lock time.Duration) {
			t.Helper()
			for range 2 {
				if got, err := b.ShareSettings(t.Context(), name); err != nil || got.Lock != lock {
					t.Fatalf("lock of %s: %v, %v; want %v", name, got.Lock, err, lock)
				}
			}
		}
		want("g", 30*time.Second)
		alterShare(t, b, "share.record.lock.duration.ms", "20000")
		want("g", 20*time.Second)
		alterShare(t, b, "share.record.lock.duration.ms", "40000")
		want("g", 40*time.Second)
		for i := range 5000 {
			name, value := fmt.Sprint("other", i), []byte(`{"format":1,"settings":{"share.record.lock.duration.ms":"50000"}}`)
			if _, err := store.Meta().Put(t.Context(), "group-settings/"+name, value, 0); err != nil {
				t.Fatal(err)
			}
			want(name, 50*time.Second)
		}
		want("g", 40*time.Second)
		if err := b.AlterGroup(t.Context(), "g", nil, true, false); err != nil {
			t.Fatal(err)
		}
		want("g", 30*time.Second)
	})
}
