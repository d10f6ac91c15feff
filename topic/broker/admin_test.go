package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

var errBroken = errors.New("broken")

// failing fails calls whose name contains a text.
func failing(part string) func(string) error {
	return func(name string) error {
		if strings.Contains(name, part) {
			return errBroken
		}
		return nil
	}
}

// The store fails in the middle of a change: the change is completed, or made again, without
// a restart.
func TestAChangeThatFailedHalfWayCanBeMadeAgain(t *testing.T) {
	store := &faultyStore{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{})
	store.set(func(s *faultyStore) { s.failOpen = failing("records-") })
	spec := topic.Spec{Name: "orders", Partitions: 2}
	if _, err := b.Create(t.Context(), spec, false); !errors.Is(err, errBroken) {
		t.Fatalf("create: %v", err)
	}
	store.set(func(s *faultyStore) { s.failOpen = nil })
	if _, err := b.Create(t.Context(), spec, false); !errors.Is(err, topic.ErrTopicExists) {
		t.Fatalf("create again: %v", err)
	}
	orders, err := b.Topic("orders")
	if err != nil || len(orders.Partitions()) != 2 {
		t.Fatalf("%v, %v", orders, err)
	}

	store.set(func(s *faultyStore) { s.failOpen = failing("-3") })
	if err := b.AddPartitions(t.Context(), "orders", 4, false); !errors.Is(err, errBroken) {
		t.Fatalf("add partitions: %v", err)
	}
	store.set(func(s *faultyStore) { s.failOpen = nil })
	if err := b.AddPartitions(t.Context(), "orders", 4, false); !errors.Is(err, topic.ErrInvalidPartitions) || len(orders.Partitions()) != 4 {
		t.Fatalf("add partitions again: %v, there are %d", err, len(orders.Partitions()))
	}
	until.True(t, "all partitions are open", func() bool {
		return !slices.ContainsFunc(orders.Partitions(), func(p *broker.Partition) bool { return p.Leader() < 0 })
	})

	store.set(func(s *faultyStore) { s.failDelete = failing("-2") })
	if err := b.Delete(t.Context(), "orders"); !errors.Is(err, errBroken) {
		t.Fatalf("delete: %v", err)
	}
	store.set(func(s *faultyStore) { s.failDelete = nil })
	for _, want := range []error{nil, topic.ErrNoTopic} {
		if err := b.Delete(t.Context(), "orders"); !errors.Is(err, want) {
			t.Fatalf("delete again: %v, want %v", err, want)
		}
	}

	create(t, b, "orders", nil)
	store.set(func(s *faultyStore) { s.failDelete = failing("records-") })
	if err := b.Delete(t.Context(), "orders"); !errors.Is(err, errBroken) {
		t.Fatalf("delete: %v", err)
	}
	store.set(func(s *faultyStore) { s.failDelete = nil })
	if made := create(t, b, "orders", nil); send(t, made, batchOf(anybody, now(), "new")) != 0 {
		t.Error("a topic that is made again has old records")
	}
}

// A client that leaves in the middle of a creation leaves no partial topic.
func TestATopicIsMadeAlsoIfWhoAskedHasLeft(t *testing.T) {
	store := &faultyStore{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{})
	ctx, leave := context.WithCancel(t.Context())
	store.set(func(s *faultyStore) {
		s.failPut = func(key string) error {
			if strings.HasPrefix(key, "topics/") {
				leave()
			}
			return nil
		}
	})
	made, err := b.AutoCreate(ctx, "orders", "")
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "a leader", func() bool { return made.Partitions()[0].Leader() >= 0 })
	send(t, made, batchOf(anybody, now(), "first"))
}

// spoil changes a bit of a topic's first entry, and the filter of the view.
func spoil(t *testing.T, store *storetest.Memory, id topic.ID) {
	t.Helper()
	log, err := store.OpenLog(t.Context(), fmt.Sprintf("records-%s-0", id), nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := log.Read(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	entries[0].Data[len(entries[0].Data)-1] ^= 1
	item, err := store.Meta().Get(t.Context(), "topics/view")
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Replace(item.Value, []byte("string(value)"), []byte("strong(value)"), 1)
	if _, err := store.Meta().Put(t.Context(), "topics/view", broken, item.Revision); err != nil {
		t.Fatal(err)
	}
}

// One log is corrupt, and one view has a filter that this release does not accept: all
// other topics are served, and both can be deleted.
func TestWhatCannotBeReadHarmsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		bad, good := create(t, b, "bad", delays), create(t, b, "good", nil)
		view := map[string]string{"sluice.view.of": "good", "sluice.view.where": `string(value) == "a"`}
		if _, err := b.Create(t.Context(), topic.Spec{Name: "view", Settings: view}, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until records may be delayed
		send(t, bad, batchOf(anybody, now(), "gone"))
		send(t, good, batchOf(anybody, now(), "a"))
		killed := store.Reopen() // a planned stop would store what the log shows
		stopBroker(t, b)
		store = killed
		spoil(t, store, bad.ID())

		b = startBroker(t, store, topic.Config{})
		good, _ = b.Topic("good")
		send(t, good, batchOf(anybody, now(), "b"))
		if _, values := readAll(t, good, 0, 1); !slices.Equal(values, []string{"a", "b"}) {
			t.Errorf("read %q", values)
		}
		bad, err := b.Topic("bad")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bad.Partition(0); !errors.Is(err, topic.ErrRetry) || bad.Partitions()[0].Leader() != -1 {
			t.Errorf("the corrupt partition: %v, leader %d", err, bad.Partitions()[0].Leader())
		}
		shown, err := b.Topic("view")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shown.Read(t.Context(), 0, 0, 1); !errors.Is(err, topic.ErrInvalidSetting) {
			t.Errorf("the broken view: %v", err)
		}
		where := `string(value) == "b"`
		if err := b.Alter(t.Context(), "view", map[string]*string{"sluice.view.where": &where}, false, false); err != nil {
			t.Fatal(err)
		}
		if _, values := readAll(t, shown, 0, 1<<20); !slices.Equal(values, []string{"b"}) {
			t.Errorf("the view that was altered shows %q", values)
		}
		time.Sleep(3 * time.Minute)
		if err := b.Delete(t.Context(), "bad"); err != nil {
			t.Error(err)
		}
	})
}

// Delays are turned on after the broker has stopped: no call waits forever.
func TestAlterAfterStopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		create(t, b, "orders", nil)
		stopBroker(t, b)
		on := "true"
		if err := b.Alter(t.Context(), "orders", map[string]*string{"sluice.delay.enable": &on}, false, false); err != nil {
			t.Error(err)
		}
	})
}

// AutoCreate returns a topic even if other callers create and delete it at the same
// time.
func TestAutoCreateWhileTheTopicIsDeleted(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{AutoCreatePerMinute: 1_000_000})
	var asking errgroup.Group
	for range 4 {
		asking.Go(func() error {
			for range 200 {
				if _, err := b.AutoCreate(t.Context(), "orders", ""); err != nil {
					return err
				}
				if err := b.Delete(t.Context(), "orders"); err != nil && !errors.Is(err, topic.ErrNoTopic) {
					return err
				}
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		t.Error(err)
	}
}

// All topics together have a bound of partitions, however they are made.
func TestPartitionsOfAllTopicsAreBounded(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{TotalPartitions: 5, Partitions: 2})
	create(t, b, "orders", nil)
	for name, try := range map[string]func(dryRun bool) error{
		"create": func(dryRun bool) error {
			_, err := b.Create(t.Context(), topic.Spec{Name: "payments", Partitions: 5}, dryRun)
			return err
		},
		"add partitions": func(dryRun bool) error { return b.AddPartitions(t.Context(), "orders", 6, dryRun) },
	} {
		for _, dryRun := range []bool{true, false} {
			if err := try(dryRun); !errors.Is(err, topic.ErrTooManyPartitions) || !strings.Contains(err.Error(), "topic.total_partitions, 5") {
				t.Errorf("%s, only checked %v: %v, want ErrTooManyPartitions that names the setting", name, dryRun, err)
			}
		}
	}
	if _, err := b.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{topic.SettingViewOf: "orders", topic.SettingViewWhere: "true"}}, false); err != nil {
		t.Errorf("a view, which has no partitions of its own: %v", err)
	}
	if err := b.AddPartitions(t.Context(), "orders", 5, false); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
	if _, err := b.AutoCreate(t.Context(), "returns", ""); !errors.Is(err, topic.ErrTooManyPartitions) {
		t.Errorf("created automatically: %v, want ErrTooManyPartitions", err)
	}
	if err := b.Delete(t.Context(), "paid"); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	create(t, b, "payments", nil)
}

// Few topics are created automatically at once, and others when clients ask again. Names that are
// not valid, and topics that exist, do not count.
func TestAutomaticCreationIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{AutoCreatePerMinute: 60})
		made := func() (made int) {
			for i := range 30 {
				_, err := b.AutoCreate(t.Context(), fmt.Sprint("topic-", i), "")
				switch {
				case err == nil:
					made++
				case !errors.Is(err, topic.ErrNoTopic):
					t.Fatal(err)
				}
			}
			return made
		}
		for range 50 {
			if _, err := b.AutoCreate(t.Context(), "not valid!", ""); !errors.Is(err, topic.ErrInvalidName) {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 10}, {5 * time.Second, 15}, {time.Hour, 25}, {time.Hour, 30}} { // one a second, and at most ten at once
			time.Sleep(step.after)
			if got := made(); got != step.want {
				t.Fatalf("%d topics exist, want %d", got, step.want)
			}
		}
	})
}
