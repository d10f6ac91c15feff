package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// admin is a server without connections, over a broker in memory.
func admin(t *testing.T, config topic.Config) *Server {
	t.Helper()
	broker, err := broker.New(storetest.NewMemory(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, broker.Stop) })
	return NewServer(broker, Options{Advertise: "kafka.example:9192"})
}

// made creates a topic and returns it.
func (s *Server) made(t *testing.T, spec topic.Spec) *broker.Topic {
	t.Helper()
	created, err := s.broker.Create(t.Context(), spec, false)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// asked sends a request through the table, encoded and decoded as a client does at that version,
// and returns the answer.
func asked[Q kmsg.Request, R kmsg.Response](t *testing.T, s *Server, version int16, q Q) R {
	t.Helper()
	kind := kinds()[q.Key()]
	if kind == nil || version < kind.min || version > kind.max {
		t.Fatalf("%s version %d is not served", requestName(q.Key()), version)
	}
	q.SetVersion(version)
	received := kmsg.RequestForKey(q.Key())
	received.SetVersion(version)
	if err := received.ReadFrom(q.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	sent := kind.handle(s, &call{session: &connection{server: s, listener: s.options.listeners()[0]}, memory: &allowance{server: s, ctx: t.Context()}}, received)(t.Context())
	response := q.ResponseKind()
	response.SetVersion(version)
	if err := response.ReadFrom(sent.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return response.(R)
}

// result formats the code and message of an answer, for comparing.
func result(code int16, message *string) string {
	text := "NONE"
	if kind := kerr.TypedErrorForCode(code); kind != nil {
		text = kind.Message
	}
	if message != nil {
		text += ": " + *message
	}
	return text
}

// matches reports whether a result begins with the code, and contains the rest of want.
func matches(got, want string) bool {
	code, rest, _ := strings.Cut(want, ": ")
	return (got == code || strings.HasPrefix(got, code+":")) && strings.Contains(got, rest)
}

// versions calls f with each supported version of a kind.
func versions(key int16, f func(version int16)) {
	kind := kinds()[key]
	for version := kind.min; version <= kind.max; version++ {
		f(version)
	}
}

// opaqueBatch returns a batch of count records whose content does not matter.
func opaqueBatch(count int) topic.Batch {
	records := make([]topic.Record, count)
	for i := range records {
		records[i].Offset, records[i].Timestamp = int64(i), time.Now().UnixMilli()
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{})
	if err != nil {
		panic(err)
	}
	return batch
}

// fill appends a batch of count records to a partition.
func fill(t *testing.T, to *broker.Topic, partition int32, batch topic.Batch) {
	t.Helper()
	appending, err := to.Append(t.Context(), partition, []topic.Batch{batch})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := appending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCreateTopics(t *testing.T) {
	assigned := func(all ...[]int32) (list []kmsg.CreateTopicsRequestTopicReplicaAssignment) {
		for i, replicas := range all {
			list = append(list, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: replicas})
		}
		return list
	}
	text := kmsg.StringPtr
	versions(19, func(version int16) {
		s := admin(t, topic.Config{Partitions: 3})
		s.made(t, topic.Spec{Name: "there"})
		for _, test := range []struct {
			wanted     kmsg.CreateTopicsRequestTopic
			want       string
			partitions int32
		}{
			{kmsg.CreateTopicsRequestTopic{Topic: "plain", NumPartitions: 2, ReplicationFactor: 1}, "NONE", 2},
			{kmsg.CreateTopicsRequestTopic{Topic: "default", NumPartitions: -1, ReplicationFactor: -1}, "NONE", 3},
			{kmsg.CreateTopicsRequestTopic{Topic: "assigned", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigned([]int32{1}, []int32{1})}, "NONE", 2},
			{kmsg.CreateTopicsRequestTopic{Topic: "view", NumPartitions: -1, ReplicationFactor: -1, Configs: []kmsg.CreateTopicsRequestTopicConfig{
				{Name: "sluice.view.of", Value: text("there")}, {Name: "sluice.view.where", Value: text("true")}}}, "NONE", 3},
			{kmsg.CreateTopicsRequestTopic{Topic: "there", NumPartitions: 1, ReplicationFactor: 1}, "TOPIC_ALREADY_EXISTS: there", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "a b", NumPartitions: 1, ReplicationFactor: 1}, "INVALID_TOPIC_EXCEPTION: letters", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "none", NumPartitions: 0, ReplicationFactor: 1}, "INVALID_PARTITIONS: want 1 or more, or -1", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "many", NumPartitions: 1001, ReplicationFactor: 1}, "INVALID_PARTITIONS: 1001", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "three", NumPartitions: 1, ReplicationFactor: 3}, "INVALID_REPLICATION_FACTOR: 1 nodes can keep one", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "zero", NumPartitions: 1, ReplicationFactor: 0}, "INVALID_REPLICATION_FACTOR: want 1", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "far", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigned([]int32{1, 2})}, "INVALID_REPLICA_ASSIGNMENT: there is no broker 2", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "gap", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{1}}}}, "INVALID_REPLICA_ASSIGNMENT: from 0 on", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "both", NumPartitions: 1, ReplicationFactor: 1, ReplicaAssignment: assigned([]int32{1})}, "INVALID_REQUEST: want -1 for both", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "compact", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: text("compacted")}}}, "INVALID_CONFIG: want delete, compact, or both", 0},
			{kmsg.CreateTopicsRequestTopic{Topic: "null", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}}, "INVALID_CONFIG: has no value", 0},
		} {
			for _, dryRun := range []bool{true, false} {
				if dryRun && version == 0 { // this version has no such field
					continue
				}
				r := asked[*kmsg.CreateTopicsRequest, *kmsg.CreateTopicsResponse](t, s, version, &kmsg.CreateTopicsRequest{
					Topics: []kmsg.CreateTopicsRequestTopic{test.wanted}, TimeoutMillis: 1000, ValidateOnly: dryRun,
				})
				checkCreated(t, s, version, dryRun, test.want, test.partitions, &r.Topics[0])
			}
		}
	})
}

func checkCreated(t *testing.T, s *Server, version int16, dryRun bool, want string, partitions int32, got *kmsg.CreateTopicsResponseTopic) {
	t.Helper()
	if version == 0 {
		want, _, _ = strings.Cut(want, ": ")
	}
	if !matches(result(got.ErrorCode, got.ErrorMessage), want) {
		t.Errorf("version %d, %s: %s, want %s", version, got.Topic, result(got.ErrorCode, got.ErrorMessage), want)
	}
	made, err := s.broker.Topic(got.Topic)
	if exists := err == nil; got.Topic != "there" && exists != (want == "NONE" && !dryRun) {
		t.Errorf("version %d, %s, dry run %v: exists %v", version, got.Topic, dryRun, exists)
	}
	if want != "NONE" {
		return
	}
	if !dryRun && len(made.Partitions()) != int(partitions) {
		t.Errorf("%s has %d partitions, want %d", got.Topic, len(made.Partitions()), partitions)
	}
	if version >= 5 && (got.NumPartitions != partitions || got.ReplicationFactor != 1 || len(got.Configs) == 0) {
		t.Errorf("version %d: %s is told to have %d partitions, %d replicas, %d settings", version, got.Topic, got.NumPartitions, got.ReplicationFactor, len(got.Configs))
	}
	if version >= 7 && !dryRun && got.TopicID != made.ID() {
		t.Errorf("version %d: %s has another id", version, got.Topic)
	}
}

func TestCreateTopicsTwice(t *testing.T) {
	s := admin(t, topic.Config{})
	one := kmsg.CreateTopicsRequestTopic{Topic: "one", NumPartitions: 1, ReplicationFactor: 1}
	two := kmsg.CreateTopicsRequestTopic{Topic: "two", NumPartitions: 1, ReplicationFactor: 1}
	r := asked[*kmsg.CreateTopicsRequest, *kmsg.CreateTopicsResponse](t, s, 7, &kmsg.CreateTopicsRequest{Topics: []kmsg.CreateTopicsRequestTopic{one, two, one}})
	for i, want := range []string{"INVALID_REQUEST: more than once", "NONE", "INVALID_REQUEST: more than once"} {
		if got := result(r.Topics[i].ErrorCode, r.Topics[i].ErrorMessage); !matches(got, want) {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

func TestDeleteTopics(t *testing.T) {
	versions(20, func(version int16) {
		s := admin(t, topic.Config{})
		for _, name := range []string{"a", "b", "c", "source"} {
			s.made(t, topic.Spec{Name: name})
		}
		s.made(t, topic.Spec{Name: "view", Settings: map[string]string{"sluice.view.of": "source", "sluice.view.where": "true"}})
		request := &kmsg.DeleteTopicsRequest{TopicNames: []string{"a", "nosuch", "b", "b", "source"}, TimeoutMillis: 1000}
		want := []string{"NONE", "UNKNOWN_TOPIC_OR_PARTITION: topic does not exist", "INVALID_REQUEST: more than once", "INVALID_REQUEST: more than once", "POLICY_VIOLATION: delete \"view\" first"}
		if version >= 6 {
			c, err := s.broker.Topic("c")
			if err != nil {
				t.Fatal(err)
			}
			for i := range request.TopicNames {
				request.Topics = append(request.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &request.TopicNames[i]})
			}
			request.Topics = append(request.Topics, kmsg.DeleteTopicsRequestTopic{TopicID: c.ID()},
				kmsg.DeleteTopicsRequestTopic{TopicID: topic.ID{1}}, kmsg.DeleteTopicsRequestTopic{}, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("view"), TopicID: c.ID()})
			want = append(want, "NONE", "UNKNOWN_TOPIC_ID: no topic with the id", "INVALID_REQUEST: one of them", "INVALID_REQUEST: one of them")
		}
		r := asked[*kmsg.DeleteTopicsRequest, *kmsg.DeleteTopicsResponse](t, s, version, request)
		for i := range want {
			wanted := want[i]
			if version < 5 {
				wanted, _, _ = strings.Cut(wanted, ": ")
			}
			if got := result(r.Topics[i].ErrorCode, r.Topics[i].ErrorMessage); !matches(got, wanted) {
				t.Errorf("version %d, %d: %s, want %s", version, i, got, wanted)
			}
		}
		var left []string
		for _, t := range s.broker.Topics() {
			left = append(left, t.Name())
		}
		wantLeft := []string{"b", "c", "source", "view"}
		if version >= 6 {
			wantLeft = []string{"b", "source", "view"}
			if name := r.Topics[5].Topic; name == nil || *name != "c" {
				t.Errorf("the topic that was deleted by its id is named %v", name)
			}
		}
		if !slices.Equal(left, wantLeft) {
			t.Errorf("version %d leaves %v, want %v", version, left, wantLeft)
		}
	})
}

func TestCreatePartitions(t *testing.T) {
	here, far := []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}, []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{2}}}
	versions(37, func(version int16) {
		s := admin(t, topic.Config{})
		s.made(t, topic.Spec{Name: "orders", Partitions: 2})
		s.made(t, topic.Spec{Name: "view", Settings: map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true"}})
		for _, test := range []struct {
			name   string
			count  int32
			on     []kmsg.CreatePartitionsRequestTopicAssignment
			dryRun bool
			want   string
			then   int
		}{
			{"orders", 3, nil, true, "NONE", 2},
			{"orders", 3, here, false, "NONE", 3},
			{"orders", 3, nil, false, "INVALID_PARTITIONS: want 4 to 1000", 3},
			{"orders", 1001, nil, true, "INVALID_PARTITIONS: 1001", 3},
			{"orders", 4, far, false, "INVALID_REPLICA_ASSIGNMENT: partition 3 on brokers [2]", 3},
			{"orders", 5, here, false, "INVALID_REPLICA_ASSIGNMENT: 1 partitions, 2 are new", 3},
			{"orders", 2147483647, nil, false, "INVALID_PARTITIONS: 2147483647", 3},
			{"view", 9, nil, false, "POLICY_VIOLATION: has the partitions of orders", 3},
			{"nosuch", 9, nil, false, "UNKNOWN_TOPIC_OR_PARTITION: topic does not exist", 3},
		} {
			r := asked[*kmsg.CreatePartitionsRequest, *kmsg.CreatePartitionsResponse](t, s, version, &kmsg.CreatePartitionsRequest{
				Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: test.name, Count: test.count, Assignment: test.on}}, ValidateOnly: test.dryRun,
			})
			orders, err := s.broker.Topic("orders")
			if err != nil {
				t.Fatal(err)
			}
			if got := result(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage); !matches(got, test.want) || len(orders.Partitions()) != test.then {
				t.Errorf("version %d, %s to %d: %s with %d partitions, want %s with %d", version, test.name, test.count, got, len(orders.Partitions()), test.want, test.then)
			}
		}
	})
}

func TestDeleteRecords(t *testing.T) {
	versions(21, func(version int16) {
		s := admin(t, topic.Config{})
		orders := s.made(t, topic.Spec{Name: "orders"})
		s.made(t, topic.Spec{Name: "view", Settings: map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true"}})
		fill(t, orders, 0, opaqueBatch(10))
		for _, test := range []struct {
			name      string
			partition int32
			offset    int64
			want      string
		}{
			{"orders", 0, 4, "NONE 4"},
			{"orders", 0, 2, "NONE 4"},
			{"orders", 0, 11, "OFFSET_OUT_OF_RANGE -1"},
			{"orders", 0, -2, "OFFSET_OUT_OF_RANGE -1"},
			{"orders", 1, 1, "UNKNOWN_TOPIC_OR_PARTITION -1"},
			{"nosuch", 0, 1, "UNKNOWN_TOPIC_OR_PARTITION -1"},
			{"view", 0, 5, "POLICY_VIOLATION -1"},
			{"orders", 0, -1, "NONE 10"},
		} {
			r := asked[*kmsg.DeleteRecordsRequest, *kmsg.DeleteRecordsResponse](t, s, version, &kmsg.DeleteRecordsRequest{
				Topics: []kmsg.DeleteRecordsRequestTopic{{Topic: test.name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: test.partition, Offset: test.offset}}}},
			})
			p := r.Topics[0].Partitions[0]
			if got := fmt.Sprintf("%s %d", result(p.ErrorCode, nil), p.LowWatermark); got != test.want {
				t.Errorf("version %d, %s/%d before %d: %s, want %s", version, test.name, test.partition, test.offset, got, test.want)
			}
		}
		if start := orders.Partitions()[0].Ends().Start; start != 10 {
			t.Errorf("version %d: the partition starts at %d, want 10", version, start)
		}
	})
}
