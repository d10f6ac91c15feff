package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// One node of a cluster is a store like others.
func TestNodes(t *testing.T) {
	t.Parallel()
	for _, id := range []int32{1, 3} { // the first leads new logs by default
		restart := func(_ testing.TB, s topic.Store) topic.Store {
			nodes := s.(*NodeStore).nodes
			nodes.Kill(id)
			again := nodes.Restart(id)
			nodes.ElectAll()
			return again
		}
		Run(t, Factory{Open: func(testing.TB) topic.Store { return NewCluster(3).Store(id) }, Reopen: restart, Crash: restart})
	}
}

func openNode(t *testing.T, s *NodeStore, name string, nodes ...int32) topic.Log {
	t.Helper()
	log, err := s.OpenLog(t.Context(), name, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// appended appends an entry and waits.
func appended(log topic.Log, sequence uint64) error {
	done := make(chan error, 1)
	log.Append(entry(sequence, 10), func(err error) { done <- err })
	return <-done
}

// A node that is cut off sees its last state and writes nothing; the others elect another
// leader and continue.
func TestANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := NewCluster(3)
		one, two := nodes.Store(1), nodes.Store(2)
		old := openNode(t, one, "a", 1, 2, 3)
		log := openNode(t, two, "a")
		if err := errors.Join(appended(old, 1), appended(log, 2)); err != nil {
			t.Fatal(err)
		}
		signaled := 0
		defer two.Watch(func() { signaled++ })()
		nodes.Cut(1)
		if !one.Leads("a") || two.Leads("a") || !slices.Equal(one.Alive(), []int32{1}) || !slices.Equal(two.Alive(), []int32{2, 3}) || signaled == 0 {
			t.Error("who leads and lives is wrong after the cut")
		}
		if err := appended(log, 3); !errors.Is(err, topic.ErrUncertain) {
			t.Errorf("append without a leader: %v", err)
		}
		if _, _, err := log.Ends(t.Context()); !errors.Is(err, topic.ErrUncertain) {
			t.Errorf("ends without a leader: %v", err)
		}
		nodes.ElectAll()
		if err := appended(log, 3); err != nil || !two.Leads("a") {
			t.Errorf("append to the new leader: %v", err)
		}
		if err := appended(old, 3); !errors.Is(err, topic.ErrUncertain) {
			t.Errorf("append of the node that is cut off: %v", err)
		}
		if _, err := one.Meta().Put(t.Context(), "key", nil, 0); !errors.Is(err, topic.ErrUncertain) {
			t.Errorf("write of the node that is cut off: %v", err)
		}
		if _, err := two.Meta().Put(t.Context(), "key", nil, 0); err != nil {
			t.Error(err)
		}
		if _, err := one.Meta().Get(t.Context(), "key"); !errors.Is(err, topic.ErrNotFound) {
			t.Errorf("read of what was written since: %v", err)
		}
		if _, last, err := old.Ends(t.Context()); last != 2 || err != nil {
			t.Errorf("it sees %d entries, %v", last, err)
		}
		nodes.Heal(1)
		if _, last, err := old.Ends(t.Context()); last != 3 || err != nil || one.Leads("a") {
			t.Errorf("after it is healed it sees %d entries, %v", last, err)
		}
		if _, err := one.Meta().Get(t.Context(), "key"); err != nil {
			t.Error(err)
		}
	})
}

// An append in flight arrives when its sender no longer leads.
func TestALateAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := NewCluster(3)
		one := nodes.Store(1)
		log := openNode(t, one, "a", 1, 2, 3)
		one.Delay()
		var outcomes []error
		for sequence := range uint64(3) {
			log.Append(entry(sequence+1, 10), func(err error) { outcomes = append(outcomes, err) })
		}
		time.Sleep(time.Second)
		if !nodes.Elect("a", 2) {
			t.Fatal("not elected")
		}
		one.ReleaseSome(func(e topic.Entry) bool { return e.Sequence == 1 })
		synctest.Wait()
		if len(nodes.Entries("a")) != 1 || len(outcomes) != 3 {
			t.Fatalf("%d entries, outcomes %v", len(nodes.Entries("a")), outcomes)
		}
		for _, err := range outcomes {
			if !errors.Is(err, topic.ErrUncertain) {
				t.Errorf("outcomes %v", outcomes)
			}
		}
	})
}

// Elections need a majority of a log's replicas, and happen without a request if that is
// configured.
func TestElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := NewCluster(4)
		nodes.ElectAfter(5 * time.Second)
		two := nodes.Store(2)
		openNode(t, two, "a", 1, 2, 3)
		if nodes.Elect("a", 4) {
			t.Error("a node leads a log that it does not have")
		}
		nodes.Kill(1)
		time.Sleep(6 * time.Second)
		if nodes.Leader("a") != 2 {
			t.Errorf("leader %d", nodes.Leader("a"))
		}
		nodes.Cut(2)
		time.Sleep(6 * time.Second)
		if nodes.Leader("a") != 0 {
			t.Errorf("leader %d of one node of three", nodes.Leader("a"))
		}
		nodes.Restart(1)
		time.Sleep(6 * time.Second)
		if nodes.Leader("a") != 1 {
			t.Errorf("leader %d", nodes.Leader("a"))
		}
	})
}

// A log is moved in steps, and transferred before a planned stop.
func TestPlaceAndLeave(t *testing.T) {
	nodes := NewCluster(4)
	one := nodes.Store(1)
	openNode(t, one, "a", 1, 2, 3)
	for step := range 4 {
		placed, err := one.Place(t.Context(), "a", []int32{4, 2, 3})
		if err != nil || placed != (step == 3) {
			t.Fatalf("step %d: %v, %v", step, placed, err)
		}
	}
	replicas, err := nodes.Store(2).Replicas(context.Background(), "a")
	if err != nil || replicas.Leader != 4 || !slices.Equal(replicas.Nodes, []int32{2, 3, 4}) || !slices.Equal(replicas.Current, []int32{2, 3, 4}) {
		t.Fatalf("%+v, %v", replicas, err)
	}
	four := nodes.Store(4)
	if err := four.Resign(t.Context(), "a", 3); err != nil || nodes.Leader("a") != 3 {
		t.Fatalf("leader %d, %v", nodes.Leader("a"), err)
	}
	if err := nodes.Store(3).Leave(t.Context()); err != nil || nodes.Leader("a") != 4 {
		t.Fatalf("leader %d, %v", nodes.Leader("a"), err)
	}
	if !slices.Equal(four.Alive(), []int32{1, 2, 4}) {
		t.Errorf("alive: %v", four.Alive())
	}
}

// A node's metadata may be older than that of others, until it writes or syncs.
func TestMetadataThatLags(t *testing.T) {
	nodes := NewCluster(3)
	one, two := nodes.Store(1).Meta(), nodes.Store(2).Meta()
	signaled := 0
	defer two.Watch("a/", func() { signaled++ })()
	nodes.Store(2).Lag(true)
	revision, err := one.Put(t.Context(), "a/1", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Get(t.Context(), "a/1"); !errors.Is(err, topic.ErrNotFound) || signaled != 0 {
		t.Errorf("before: %v", err)
	}
	if _, err := two.Put(t.Context(), "b", nil, 0, topic.Guard{Key: "a/1"}); !errors.Is(err, topic.ErrConflict) {
		t.Errorf("a guard on what it does not know yet: %v", err)
	}
	if item, err := two.Get(t.Context(), "a/1"); err != nil || item.Revision != revision || signaled != 1 {
		t.Errorf("after: %+v, %v", item, err)
	}
	if err := one.Delete(t.Context(), "a/1", revision); err != nil {
		t.Fatal(err)
	}
	if err := two.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Get(t.Context(), "a/1"); !errors.Is(err, topic.ErrNotFound) || signaled != 2 {
		t.Errorf("after Sync: %v", err)
	}
}
