package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// usedServer returns a server with a topic of which the first records are deleted, a view,
// delayed records and a group. It also returns the values of the first partition, the
// group's member, the producer and its last batch.
func usedServer(t *testing.T) (source *server, want []string, me group.MemberIdentity, producer int64, last topic.Batch) {
	source = startServer(t, storetest.NewMemory())
	orders := source.create("orders", 2, map[string]string{"retention.ms": "-1"})
	source.create("paid", 0, map[string]string{topic.SettingViewOf: "orders", topic.SettingViewWhere: `string(value).startsWith("paid")`})
	source.create("later", 1, map[string]string{topic.SettingDelays: "true"})
	producer, err := source.broker.NewProducerID(t.Context())
	must(t, err)
	for n := range 40 {
		last = batch(t, &topic.BatchProducer{ID: producer, Sequence: int32(2 * n)}, nil, fmt.Sprint("paid ", n), fmt.Sprint("open ", n))
		_, err := source.send("orders", 0, last)
		must(t, err)
	}
	p, err := orders.Partition(0)
	must(t, err)
	_, err = p.DeleteRecords(t.Context(), 31)
	must(t, err)
	for n := range 3 {
		delay := []topic.Header{{Key: topic.HeaderDelay, Value: []byte("1h")}, {Key: topic.HeaderDelayID, Value: fmt.Append(nil, "id", n)}}
		_, err = source.send("later", 0, batch(t, nil, delay, fmt.Sprint("later ", n)))
		must(t, err)
	}
	me = source.member("g", "orders")
	must(t, source.commit(me, "orders", 35))
	earliest := "earliest"
	must(t, source.broker.AlterGroup(t.Context(), "shared", map[string]*string{"share.auto.offset.reset": &earliest}, false, false))
	return source, source.values("orders", 0), me, producer, last
}

// All data of a server is in the other store afterwards, and clients continue there
// without interruption.
func TestEverythingIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, want, me, id, last := usedServer(t)
		defer source.stop()
		store := storetest.NewMemory()
		result, err := migrate.New(source.export, migrate.NewImport(store), migrate.Options{}).Run(t.Context())
		must(t, err)
		if result.Status.State != catalog.ImportOpen || result.Before || result.Entries == 0 {
			t.Errorf("the result is %+v", result)
		}
		sameLogs(t, source.store, source.inventory(), store)
		for _, prefix := range []string{"groups/", "group-settings/", "offsets/", "producers/", "producer-ids"} {
			if got, want := items(t, store, prefix), items(t, source.store, prefix); !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", prefix, got, want)
			}
		}
		if _, err := source.send("orders", 0, last); !errors.Is(err, topic.ErrNotLeader) {
			t.Errorf("the source still takes records: %v", err)
		}

		target := startServer(t, store)
		defer target.stop()
		if got := target.values("orders", 0); !slices.Equal(got, want) {
			t.Errorf("orders has %q, want %q", got, want)
		}
		checkProducer(t, target, id, last)
		must(t, target.broker.Groups().Heartbeat(me))
		must(t, target.commit(me, "orders", 36))
		view, err := target.broker.Topic("paid")
		if err != nil || view.Source() == nil || view.Source().Name() != "orders" {
			t.Errorf("the view is %v, %v", view, err)
		}
		must(t, target.broker.CancelDelayed(t.Context(), "later", "id1"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := target.values("later", 0); !slices.Equal(got, []string{"later 0", "later 2"}) {
			t.Errorf("delayed records: %q", got)
		}
	})
}

// checkProducer continues as a producer in the target, after its last batch.
func checkProducer(t *testing.T, target *server, id int64, last topic.Batch) {
	t.Helper()
	base, err := target.send("orders", 0, last)
	if err != nil || base != 78 {
		t.Errorf("the producer's last batch again: offset %d, %v; want 78", base, err)
	}
	base, err = target.send("orders", 0, batch(t, &topic.BatchProducer{ID: id, Sequence: 80}, nil, "next"))
	if err != nil || base != 80 {
		t.Errorf("the producer's next batch: offset %d, %v; want 80", base, err)
	}
	if other, err := target.broker.NewProducerID(t.Context()); err != nil || other <= id {
		t.Errorf("the next producer is %d, %v, after %d", other, err, id)
	}
}

// A server whose topics were migrated redirects clients, and does not serve again.
func TestTheSourceIsThePast(t *testing.T) {
	source := startServer(t, storetest.NewMemory())
	source.create("orders", 1, nil)
	store := storetest.NewMemory()
	_, err := store.Meta().Put(t.Context(), "nodes/2", []byte(`{"id":2,"host":"b","port":9092,"listeners":{"public":"c:9093"}}`), 0)
	must(t, err)
	mover := func() *migrate.Migrator {
		return migrate.New(source.export, migrate.NewImport(store), migrate.Options{})
	}
	_, err = mover().Run(t.Context())
	must(t, err)
	if to := source.broker.MovedTo(); !reflect.DeepEqual(to, []catalog.Address{{ID: 2, Host: "b", Port: 9092, Listeners: map[string]string{"public": "c:9093"}}}) {
		t.Errorf("it says it has moved to %v", to)
	}
	if result, err := mover().Run(t.Context()); err != nil || !result.Before {
		t.Errorf("the same again: %+v, %v", result, err)
	}
	if _, err := mover().Abort(t.Context()); !errors.Is(err, migrate.ErrImported) {
		t.Errorf("giving up afterwards: %v", err)
	}
	from, err := source.broker.Topic("orders")
	must(t, err)
	if _, err := from.Read(t.Context(), 0, 0, 1); !errors.Is(err, topic.ErrNotLeader) {
		t.Errorf("reading: %v", err)
	}
	if err := source.broker.Groups().Heartbeat(group.MemberIdentity{Group: "g"}); !errors.Is(err, group.ErrNotCoordinator) {
		t.Errorf("a heartbeat: %v", err)
	}
	source.stop()
	source.store = source.store.Reopen()
	err = source.start()
	var moved *catalog.MigratedError
	if !errors.As(err, &moved) || !strings.HasSuffix(err.Error(), " b:9092") {
		t.Errorf("it starts again: %v", err)
	}
}

// Conflicts are reported before anything is copied.
func TestWhatIsRefused(t *testing.T) {
	source := startServer(t, storetest.NewMemory())
	defer source.stop()
	source.create("orders", 1, nil)
	source.create("paid", 0, map[string]string{topic.SettingViewOf: "orders", topic.SettingViewWhere: "true"})
	must(t, source.commit(group.MemberIdentity{Group: "g", Generation: -1}, "orders", 0))
	target := startServer(t, storetest.NewMemory())
	defer target.stop()
	target.create("orders", 1, nil)
	target.create("other", 1, nil)
	must(t, target.commit(group.MemberIdentity{Group: "g", Generation: -1}, "other", 0))
	imports := migrate.NewImport(target.store)

	var conflict *migrate.ImportConflictError
	for _, run := range []func() error{
		func() error {
			_, err := migrate.New(source.export, imports, migrate.Options{}).Run(t.Context())
			return err
		},
		func() error {
			_, err := migrate.New(source.export, imports, migrate.Options{}).Check(t.Context())
			return err
		},
	} {
		if err := run(); !errors.As(err, &conflict) || !slices.Equal(conflict.Topics, []string{"orders"}) || !slices.Equal(conflict.Groups, []string{"g"}) {
			t.Errorf("it is refused with %v", err)
		}
	}
	for want, options := range map[string]migrate.Options{
		"a view of orders": {Topics: []string{"paid"}},
		"does not exist":   {Topics: []string{"none"}},
		"want 1 to 1":      {Topics: []string{"!orders", "!paid"}, Replicas: 3},
	} {
		empty := migrate.NewImport(storetest.NewMemory())
		if _, err := migrate.New(source.export, empty, options).Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", options, err, want)
		}
	}
	if _, err := source.send("orders", 0, batch(t, nil, nil, "on")); err != nil {
		t.Errorf("the source does not serve: %v", err)
	}
}

// slowTarget is slow in the steps after the source is fenced.
type slowTarget struct {
	migrate.Target
	source *server
	slow   int
}

func (s *slowTarget) Log(ctx context.Context, source string, run int64, log string, first uint64, restart bool) (migrate.ImportedLog, error) {
	if s.source.inventory().Move.State == catalog.Fenced && s.slow > 0 {
		s.slow--
		<-ctx.Done()
		return migrate.ImportedLog{}, ctx.Err()
	}
	return s.Target.Log(ctx, source, run, log, first, restart)
}

// After a pause that is too long the source serves, and the migration continues.
func TestThePauseIsBounded(t *testing.T) {
	for fences, ends := range map[int]bool{1: true, 3: false} {
		t.Run(fmt.Sprint(fences), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := startServer(t, storetest.NewMemory())
				defer source.stop()
				source.create("orders", 1, nil)
				me := source.member("g", "orders")
				_, err := source.send("orders", 0, batch(t, nil, nil, "a"))
				must(t, err)
				target := &slowTarget{migrate.NewImport(storetest.NewMemory()), source, fences}
				began := time.Now()
				_, err = migrate.New(source.export, target, migrate.Options{MaxPause: 5 * time.Second}).Run(t.Context())
				if elapsed := time.Since(began); elapsed < time.Duration(fences)*5*time.Second || elapsed > time.Duration(fences)*6*time.Second {
					t.Errorf("it has taken %v", elapsed)
				}
				if ends {
					must(t, err)
					return
				}
				if !errors.Is(err, migrate.ErrTooLong) {
					t.Fatalf("it ends with %v", err)
				}
				if base, err := source.send("orders", 0, batch(t, nil, nil, "b")); err != nil || base != 1 {
					t.Errorf("the source does not serve: %d, %v", base, err)
				}
				must(t, source.broker.Groups().Heartbeat(me))
				must(t, source.commit(me, "orders", 1))
			})
		})
	}
}

// Records that are acknowledged while the fence is set are in the target, in order.
func TestTheFenceRacesAppends(t *testing.T) {
	for range 20 {
		source := startServer(t, storetest.NewMemory())
		source.create("orders", 4, nil)
		var sending sync.WaitGroup
		acknowledged := make([][]string, 4)
		for partition := range int32(4) {
			sending.Go(func() {
				for n := 0; ; n++ {
					value := fmt.Sprint(n)
					if _, err := source.send("orders", partition, batch(t, nil, nil, value)); err != nil {
						if !errors.Is(err, topic.ErrNotLeader) {
							t.Error(err)
						}
						return
					}
					acknowledged[partition] = append(acknowledged[partition], value)
				}
			})
		}
		store := storetest.NewMemory()
		_, err := migrate.New(source.export, migrate.NewImport(store), migrate.Options{}).Run(t.Context())
		must(t, err)
		sending.Wait()
		source.stop()
		target := startServer(t, store)
		for partition, want := range acknowledged {
			if got := target.values("orders", int32(partition)); !slices.Equal(got, want) {
				t.Errorf("partition %d has %d values, %d were acknowledged", partition, len(got), len(want))
			}
		}
		target.stop()
	}
}
