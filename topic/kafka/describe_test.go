package kafka

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

func TestDescribeCluster(t *testing.T) {
	versions(60, func(version int16) {
		s := admin(t, topic.Config{})
		r := asked[*kmsg.DescribeClusterRequest, *kmsg.DescribeClusterResponse](t, s, version, &kmsg.DescribeClusterRequest{EndpointType: 1})
		if r.ErrorCode != 0 || r.ClusterID != s.broker.ClusterID() || r.ControllerID != 1 || len(r.Brokers) != 1 {
			t.Fatalf("version %d: %+v", version, r)
		}
		if b := r.Brokers[0]; b.Host != "kafka.example" || b.Port != 9192 || b.NodeID != 1 || b.IsFenced {
			t.Errorf("version %d: broker %+v", version, b)
		}
		for kind, want := range map[int8]string{2: "MISMATCHED_ENDPOINT_TYPE: not a controller", 3: "UNSUPPORTED_ENDPOINT_TYPE: want 1"} {
			if version == 0 {
				break
			}
			r := asked[*kmsg.DescribeClusterRequest, *kmsg.DescribeClusterResponse](t, s, version, &kmsg.DescribeClusterRequest{EndpointType: kind})
			if got := result(r.ErrorCode, r.ErrorMessage); !matches(got, want) || len(r.Brokers) > 0 {
				t.Errorf("version %d, endpoint %d: %s, want %s", version, kind, got, want)
			}
		}
	})
}

func TestDescribeLogDirs(t *testing.T) {
	versions(35, func(version int16) {
		s := admin(t, topic.Config{})
		orders := s.made(t, topic.Spec{Name: "orders", Partitions: 3})
		s.made(t, topic.Spec{Name: "empty"})
		s.made(t, topic.Spec{Name: "view", Settings: map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true"}})
		batch := opaqueBatch(5)
		fill(t, orders, 1, slices.Clone(batch))
		some := []kmsg.DescribeLogDirsRequestTopic{{Topic: "orders", Partitions: []int32{1, 7}}, {Topic: "nosuch", Partitions: []int32{0}}, {Topic: "view", Partitions: []int32{1}}}
		full := fmt.Sprintf("orders/1=%d ", len(batch))
		for _, test := range []struct {
			topics []kmsg.DescribeLogDirsRequestTopic
			want   string
		}{
			{nil, "empty/0=0 orders/0=0 " + full + "orders/2=0 "},
			{some, full},
			{[]kmsg.DescribeLogDirsRequestTopic{}, ""},
		} {
			r := asked[*kmsg.DescribeLogDirsRequest, *kmsg.DescribeLogDirsResponse](t, s, version, &kmsg.DescribeLogDirsRequest{Topics: test.topics})
			got := ""
			for _, sized := range r.Dirs[0].Topics {
				for _, p := range sized.Partitions {
					got += fmt.Sprintf("%s/%d=%d ", sized.Topic, p.Partition, p.Size)
				}
			}
			if len(r.Dirs) != 1 || r.Dirs[0].ErrorCode != 0 || got != test.want {
				t.Errorf("version %d: %s, want %s", version, got, test.want)
			}
		}
	})
}

func TestDescribeTopicPartitions(t *testing.T) {
	s := admin(t, topic.Config{})
	s.made(t, topic.Spec{Name: "a", Partitions: 3})
	s.made(t, topic.Spec{Name: "b", Partitions: 2})
	s.made(t, topic.Spec{Name: "c", Partitions: 1})
	for _, test := range []struct {
		names []string
		limit int32
		want  string
	}{
		{nil, 2000, "a/0 a/1 a/2 b/0 b/1 c/0 ;"},
		{nil, 0, "a/0 a/1 a/2 b/0 b/1 c/0 ;"},
		{nil, 2, "a/0 a/1 ;a/2 b/0 ;b/1 c/0 ;"},
		{nil, 3, "a/0 a/1 a/2 ;b/0 b/1 c/0 ;"},
		{nil, 1, "a/0 ;a/1 ;a/2 ;b/0 ;b/1 ;c/0 ;"},
		{[]string{"c", "a", "c"}, 4, "a/0 a/1 a/2 c/0 ;"},
		{[]string{"nosuch", "c"}, 1, "c/0 ;nosuch:3 ;"},
	} {
		request := &kmsg.DescribeTopicPartitionsRequest{ResponsePartitionLimit: test.limit}
		for _, name := range test.names {
			request.Topics = append(request.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		got := ""
		for range 10 {
			r := asked[*kmsg.DescribeTopicPartitionsRequest, *kmsg.DescribeTopicPartitionsResponse](t, s, 0, request)
			for _, described := range r.Topics {
				if described.ErrorCode != 0 {
					got += fmt.Sprintf("%s:%d ", *described.Topic, described.ErrorCode)
				}
				for _, p := range described.Partitions {
					got += fmt.Sprintf("%s/%d ", *described.Topic, p.Partition)
					if p.LeaderID != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) || p.ErrorCode != 0 {
						t.Errorf("partition %+v", p)
					}
				}
			}
			got += ";"
			if r.NextCursor == nil {
				break
			}
			request.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: r.NextCursor.Topic, Partition: r.NextCursor.Partition}
		}
		if got != test.want {
			t.Errorf("%v by %d: %s, want %s", test.names, test.limit, got, test.want)
		}
	}
	gone := &kmsg.DescribeTopicPartitionsRequest{Cursor: &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "bb", Partition: 5}}
	if r := asked[*kmsg.DescribeTopicPartitionsRequest, *kmsg.DescribeTopicPartitionsResponse](t, s, 0, gone); len(r.Topics) != 1 || *r.Topics[0].Topic != "c" || len(r.Topics[0].Partitions) != 1 {
		t.Errorf("from a topic that is gone: %+v", r.Topics)
	}
}

func TestDescribeProducers(t *testing.T) {
	s := admin(t, topic.Config{})
	orders := s.made(t, topic.Spec{Name: "orders"})
	batch := opaqueBatch(5)
	binary.BigEndian.PutUint64(batch[43:], 1234)
	binary.BigEndian.PutUint16(batch[51:], 2)
	binary.BigEndian.PutUint32(batch[53:], 0)
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	fill(t, orders, 0, batch)
	r := asked[*kmsg.DescribeProducersRequest, *kmsg.DescribeProducersResponse](t, s, 0, &kmsg.DescribeProducersRequest{
		Topics: []kmsg.DescribeProducersRequestTopic{{Topic: "orders", Partitions: []int32{0, 1}}, {Topic: "nosuch", Partitions: []int32{0}}},
	})
	known := r.Topics[0].Partitions[0]
	if known.ErrorCode != 0 || len(known.ActiveProducers) != 1 {
		t.Fatalf("%+v", known)
	}
	if p := known.ActiveProducers[0]; p.ProducerID != 1234 || p.ProducerEpoch != 2 || p.LastSequence != 4 || p.CurrentTxnStartOffset != -1 || p.LastTimestamp <= 0 {
		t.Errorf("%+v", p)
	}
	for _, p := range []kmsg.DescribeProducersResponseTopicPartition{r.Topics[0].Partitions[1], r.Topics[1].Partitions[0]} {
		if got := result(p.ErrorCode, p.ErrorMessage); !matches(got, "UNKNOWN_TOPIC_OR_PARTITION: ") {
			t.Errorf("%s", got)
		}
	}
}

func TestElectLeaders(t *testing.T) {
	versions(43, func(version int16) {
		s := admin(t, topic.Config{})
		s.made(t, topic.Spec{Name: "orders"})
		r := asked[*kmsg.ElectLeadersRequest, *kmsg.ElectLeadersResponse](t, s, version, &kmsg.ElectLeadersRequest{
			Topics: []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{0, 1}}},
		})
		for i, want := range []string{"ELECTION_NOT_NEEDED: broker 1 leads it", "UNKNOWN_TOPIC_OR_PARTITION: partition does not exist"} {
			p := r.Topics[0].Partitions[i]
			if got := result(p.ErrorCode, p.ErrorMessage); p.Partition != int32(i) || !matches(got, want) {
				t.Errorf("version %d: %s, want %s", version, got, want)
			}
		}
		if all := asked[*kmsg.ElectLeadersRequest, *kmsg.ElectLeadersResponse](t, s, version, &kmsg.ElectLeadersRequest{}); len(all.Topics) != 0 || all.ErrorCode != 0 {
			t.Errorf("version %d, all: %+v", version, all)
		}
		if version > 0 {
			if r := asked[*kmsg.ElectLeadersRequest, *kmsg.ElectLeadersResponse](t, s, version, &kmsg.ElectLeadersRequest{ElectionType: 2}); result(r.ErrorCode, nil) != "INVALID_REQUEST" {
				t.Errorf("version %d, election type 2: %+v", version, r)
			}
		}
	})
}

func TestAlterPartitionAssignments(t *testing.T) {
	versions(45, func(version int16) {
		s := admin(t, topic.Config{})
		s.made(t, topic.Spec{Name: "orders", Partitions: 2})
		for _, test := range []struct {
			partition int32
			replicas  []int32
			want      string
		}{
			{0, []int32{1}, "NONE"},
			{1, []int32{1, 2}, "INVALID_REPLICA_ASSIGNMENT: partition 1 on brokers [1 2]: there is no broker 2"},
			{1, []int32{}, "INVALID_REPLICA_ASSIGNMENT: want 1 to 5"},
			{1, nil, "NO_REASSIGNMENT_IN_PROGRESS: not being moved"},
			{2, []int32{1}, "UNKNOWN_TOPIC_OR_PARTITION: partition does not exist"},
		} {
			r := asked[*kmsg.AlterPartitionAssignmentsRequest, *kmsg.AlterPartitionAssignmentsResponse](t, s, version, &kmsg.AlterPartitionAssignmentsRequest{
				AllowReplicationFactorChange: true,
				Topics: []kmsg.AlterPartitionAssignmentsRequestTopic{{
					Topic: "orders", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: test.partition, Replicas: test.replicas}},
				}},
			})
			p := r.Topics[0].Partitions[0]
			if got := result(p.ErrorCode, p.ErrorMessage); !matches(got, test.want) || p.Partition != test.partition || r.ErrorCode != 0 {
				t.Errorf("version %d, %v: %s, want %s", version, test.replicas, got, test.want)
			}
		}
	})
}

func TestListPartitionReassignments(t *testing.T) {
	s := admin(t, topic.Config{})
	s.made(t, topic.Spec{Name: "orders"})
	r := asked[*kmsg.ListPartitionReassignmentsRequest, *kmsg.ListPartitionReassignmentsResponse](t, s, 0, &kmsg.ListPartitionReassignmentsRequest{})
	if r.ErrorCode != 0 || len(r.Topics) != 0 {
		t.Errorf("%+v", r)
	}
}
