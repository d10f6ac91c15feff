package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// server is a broker over a store in memory.
type server struct {
	t      rapid.TB
	store  *storetest.Memory
	broker *broker.Broker
	export *migrate.Export
}

func startServer(t rapid.TB, store *storetest.Memory) *server {
	t.Helper()
	s := &server{t: t, store: store}
	must(t, s.start())
	return s
}

func (s *server) start() (err error) {
	s.broker, err = broker.New(s.store, topic.Config{})
	must(s.t, err)
	if err = s.broker.Start(context.Background()); err != nil {
		return err
	}
	s.export, err = migrate.NewExport(s.store, s.broker)
	must(s.t, err)
	return nil
}

func (s *server) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(s.t, s.broker.Stop(ctx))
}

// crash ends the broker, and starts another over the data that was durable.
func (s *server) crash() error {
	left := s.store.Reopen()
	s.stop()
	s.store = left
	return s.start()
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *server) create(name string, partitions int32, settings map[string]string) *broker.Topic {
	s.t.Helper()
	made, err := s.broker.Create(context.Background(), topic.Spec{Name: name, Partitions: partitions, Settings: settings}, false)
	must(s.t, err)
	return made
}

// send appends a batch to a partition, and returns its offset.
func (s *server) send(name string, partition int32, batch topic.Batch) (int64, error) {
	to, err := s.broker.Topic(name)
	if err != nil {
		return 0, err
	}
	appending, err := to.Append(context.Background(), partition, []topic.Batch{slices.Clone(batch)})
	if err != nil {
		return 0, err
	}
	base, _, err := appending.Wait(context.Background())
	return base, err
}

// batch returns a batch of records with these values, of an idempotent producer if it is
// not nil.
func batch(t rapid.TB, producer *topic.BatchProducer, headers []topic.Header, values ...string) topic.Batch {
	t.Helper()
	var records []topic.Record
	for i, value := range values {
		records = append(records, topic.Record{Offset: int64(i), Timestamp: time.Now().UnixMilli(), Value: []byte(value), Headers: headers})
	}
	b, err := topic.NewBatch(records, topic.BatchOptions{Producer: producer})
	must(t, err)
	return b
}

// values reads a partition from its start.
func (s *server) values(name string, partition int32) []string {
	s.t.Helper()
	from, err := s.broker.Topic(name)
	must(s.t, err)
	p, err := from.Partition(partition)
	must(s.t, err)
	values := []string{}
	for offset := p.Ends().Start; ; {
		fetched, err := from.Read(context.Background(), partition, offset, 1<<20)
		must(s.t, err)
		if fetched.Size == 0 {
			return values
		}
		batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
		must(s.t, err)
		for _, b := range batches {
			for record, err := range b.Records() {
				must(s.t, err)
				values = append(values, string(record.Value))
			}
			offset = b.Next()
		}
	}
}

// member joins a group alone, as a consumer of topics.
func (s *server) member(groupName string, topics ...string) group.MemberIdentity {
	s.t.Helper()
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = topics
	join := group.JoinRequest{
		Group: groupName, Instance: "one", Client: "c", Host: "/here", Session: time.Minute, Rebalance: time.Minute,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: metadata.AppendTo(nil)}},
	}
	joined, err := s.broker.Groups().Join(join).Wait(context.Background())
	must(s.t, err)
	me := group.MemberIdentity{Group: groupName, Instance: "one", Member: joined.Member, Generation: joined.Generation}
	_, err = s.broker.Groups().Sync(group.SyncRequest{MemberIdentity: me, Assignments: map[string][]byte{joined.Member: []byte("all")}}).Wait(context.Background())
	must(s.t, err)
	return me
}

func (s *server) commit(me group.MemberIdentity, name string, offset int64) error {
	errs, err := s.broker.Groups().Commit(group.CommitRequest{
		MemberIdentity: me, Offsets: []group.OffsetCommit{{Topic: name, Offset: offset, Epoch: -1}},
	}).Wait(context.Background())
	return errors.Join(err, errors.Join(errs...))
}

// sameLogs checks that a store has the logs of an inventory, entry by entry.
func sameLogs(t rapid.TB, from topic.Store, inventory migrate.Inventory, to topic.Store) {
	t.Helper()
	for _, in := range inventory.Topics {
		for _, log := range in.Logs {
			want, got := entries(t, from, log.Name), entries(t, to, log.Name)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("log %s of %s has %d entries, want %d\n%v\n%v", log.Name, in.Name, len(got), len(want), got, want)
			}
		}
	}
}

func entries(t rapid.TB, store topic.Store, name string) []topic.Entry {
	t.Helper()
	log, err := store.OpenLog(context.Background(), name, nil)
	must(t, err)
	read, err := log.Read(context.Background(), 1, 1<<30)
	must(t, err)
	return read
}

// inventory returns a server's inventory.
func (s *server) inventory() migrate.Inventory {
	s.t.Helper()
	inventory, err := s.export.Inventory(context.Background())
	must(s.t, err)
	return inventory
}

func items(t rapid.TB, store topic.Store, prefix string) map[string]string {
	t.Helper()
	listed, err := store.Meta().List(context.Background(), prefix)
	must(t, err)
	all := map[string]string{}
	for _, item := range listed {
		all[item.Key] = string(item.Value)
	}
	return all
}

var _ migrate.Source = (*migrate.Export)(nil)
