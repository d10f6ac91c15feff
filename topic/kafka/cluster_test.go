package kafka

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

func TestMetadataOfACluster(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	admin := kadm.NewClient(s.client())
	made, err := admin.CreateTopic(t.Context(), 6, 3, nil, "orders")
	if err != nil || made.ReplicationFactor != 3 {
		t.Fatalf("%+v, %v", made, err)
	}
	var metadata kadm.Metadata
	s.await("all partitions have leaders and replicas", func() bool {
		metadata, err = admin.Metadata(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		led := map[int32]int{}
		for _, p := range metadata.Topics["orders"].Partitions {
			if p.Err == nil && len(p.Replicas) == 3 && len(p.ISR) == 3 && len(p.OfflineReplicas) == 0 && p.LeaderEpoch > 0 && p.Leader == p.Replicas[0] {
				led[p.Leader]++
			}
		}
		return led[1] == 2 && led[2] == 2 && led[3] == 2
	})
	if metadata.Controller != 1 || len(metadata.Brokers) != 3 {
		t.Errorf("controller %d, brokers %v", metadata.Controller, metadata.Brokers)
	}
	for _, b := range metadata.Brokers {
		if address := fmt.Sprintf("%s:%d", b.Host, b.Port); address != s.servers[b.NodeID].Addr() || b.Rack == nil || *b.Rack != fmt.Sprint("rack", b.NodeID) {
			t.Errorf("broker %+v", b)
		}
	}

	s.nodes.Kill(3)
	p := dial(t, s.servers[2])
	request := kmsg.NewPtrMetadataRequest()
	s.await("a dead node is left out", func() bool {
		r := ask[*kmsg.MetadataResponse](p, 12, request)
		offline := true
		for _, p := range r.Topics[0].Partitions {
			offline = offline && slices.Equal(p.OfflineReplicas, []int32{3}) && len(p.ISR) == 2 && p.Leader != 3 && p.Leader > 0
		}
		return len(r.Brokers) == 2 && offline
	})
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.IncludeFencedBrokers = true
	fenced := ask[*kmsg.DescribeClusterResponse](p, 2, cluster)
	if len(fenced.Brokers) != 3 || !fenced.Brokers[2].IsFenced || fenced.Brokers[0].IsFenced || fenced.ControllerID != 1 {
		t.Errorf("%+v", fenced)
	}
	described := ask[*kmsg.DescribeTopicPartitionsResponse](p, 0, kmsg.NewPtrDescribeTopicPartitionsRequest())
	if parts := described.Topics[0].Partitions; len(parts) != 6 || !slices.Equal(parts[0].OfflineReplicas, []int32{3}) || len(parts[0].Replicas) != 3 {
		t.Errorf("%+v", described.Topics[0])
	}
}

// A client that has asked an isolated node finds the others: the metadata names them, and the
// client continues there, even if it knew that node only.
func TestMetadataOfANodeThatIsCutOff(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	if _, err := s.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Assignment: [][]int32{{3, 1, 2}}}, false); err != nil {
		t.Fatal(err)
	}
	s.led("orders", 0, 3)
	s.nodes.Cut(3)
	p := dial(t, s.servers[3])
	r := ask[*kmsg.MetadataResponse](p, 12, kmsg.NewPtrMetadataRequest())
	if len(r.Brokers) != 3 {
		t.Errorf("it tells of %+v", r.Brokers)
	}
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.IncludeFencedBrokers = true
	if described := ask[*kmsg.DescribeClusterResponse](p, 2, cluster); len(described.Brokers) != 3 {
		t.Errorf("the cluster is %+v", described.Brokers)
	}
	only := s.client(kgo.SeedBrokers(s.servers[3].Addr()))
	if err := only.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("after")}).FirstErr(); err != nil {
		t.Errorf("a client that knew only the one that is cut off: %v", err)
	}
}

// A node that does not lead a partition answers so, and names the leader.
func TestAskingTheWrongNode(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	if _, err := s.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Assignment: [][]int32{{2, 3, 1}}}, false); err != nil {
		t.Fatal(err)
	}
	s.led("orders", 0, 2)
	orders := s.topic(1, "orders")
	epoch := orders.Partitions()[0].Epoch()
	wrong := dial(t, s.servers[1])
	produce := produceRequest("orders", 0, batchOf([]byte("x")))
	for _, version := range []int16{9, 12} {
		r := ask[*kmsg.ProduceResponse](wrong, version, produce)
		p := r.Topics[0].Partitions[0]
		wantCode(t, "produce", p.ErrorCode, kerr.NotLeaderForPartition)
		if told := p.CurrentLeader.LeaderID == 2 && p.CurrentLeader.LeaderEpoch == epoch && len(r.Brokers) == 1; told != (version >= 10) {
			t.Errorf("version %d: %+v, at %+v", version, p.CurrentLeader, r.Brokers)
		}
	}
	for _, version := range []int16{11, 12, 16} {
		for believed, want := range map[int32]*kerr.Error{-1: kerr.NotLeaderForPartition, epoch: kerr.NotLeaderForPartition, epoch - 1: kerr.FencedLeaderEpoch, epoch + 1: kerr.UnknownLeaderEpoch} {
			fetch := fetchOrders(orders.ID(), believed)
			r := ask[*kmsg.FetchResponse](wrong, version, fetch)
			p := r.Topics[0].Partitions[0]
			wantCode(t, fmt.Sprintf("fetch with epoch %d of %d", believed, epoch), p.ErrorCode, want)
			if told := p.CurrentLeader.LeaderID == 2; told != (version >= 12 && want != kerr.UnknownLeaderEpoch) {
				t.Errorf("version %d, %v: %+v", version, want, p.CurrentLeader)
			}
			if told := len(r.Brokers) == 1 && r.Brokers[0].NodeID == 2 && r.Brokers[0].Port != 0; told != (version >= 16 && want != kerr.UnknownLeaderEpoch) {
				t.Errorf("version %d, %v: nodes %+v", version, want, r.Brokers)
			}
		}
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "orders", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
	wantCode(t, "list offsets", ask[*kmsg.ListOffsetsResponse](wrong, 6, list).Topics[0].Partitions[0].ErrorCode, kerr.NotLeaderForPartition)
	list.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch - 1
	wantCode(t, "list offsets, old epoch", ask[*kmsg.ListOffsetsResponse](wrong, 6, list).Topics[0].Partitions[0].ErrorCode, kerr.FencedLeaderEpoch)
	ends := kmsg.NewPtrOffsetForLeaderEpochRequest()
	ends.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: epoch + 1}}}}
	wantCode(t, "end of epoch", ask[*kmsg.OffsetForLeaderEpochResponse](wrong, 4, ends).Topics[0].Partitions[0].ErrorCode, kerr.UnknownLeaderEpoch)
	trim := kmsg.NewPtrDeleteRecordsRequest()
	trim.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "orders", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: -1}}}}
	wantCode(t, "delete records", ask[*kmsg.DeleteRecordsResponse](wrong, 2, trim).Topics[0].Partitions[0].ErrorCode, kerr.NotLeaderForPartition)
	right := dial(t, s.servers[2])
	wantCode(t, "produce", ask[*kmsg.ProduceResponse](right, 12, produce).Topics[0].Partitions[0].ErrorCode, nil)
}

// Each node tells the sizes of the partitions that it keeps, and only of those.
func TestSizesOfReplicas(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	if _, err := s.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Assignment: [][]int32{{2, 3}}}, false); err != nil {
		t.Fatal(err)
	}
	s.led("orders", 0, 2)
	batch := batchOf([]byte("x"))
	wantCode(t, "produce", produced(dial(t, s.servers[2]), 12, produceRequest("orders", 0, batch)).ErrorCode, nil)
	for id, want := range map[int32]string{1: "", 2: fmt.Sprint("0=", len(batch)), 3: fmt.Sprint("0=", len(batch))} {
		r := ask[*kmsg.DescribeLogDirsResponse](dial(t, s.servers[id]), 4, kmsg.NewPtrDescribeLogDirsRequest())
		got := ""
		for _, sized := range r.Dirs[0].Topics {
			for _, p := range sized.Partitions {
				got += fmt.Sprintf("%d=%d", p.Partition, p.Size)
			}
		}
		if got != want || r.Dirs[0].ErrorCode != 0 {
			t.Errorf("node %d: %q, want %q", id, got, want)
		}
	}
}

// fetchOrders fetches partition 0 of orders from the start.
func fetchOrders(id topic.ID, epoch int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.MaxBytes, r.MinBytes, r.SessionEpoch = 1<<20, 0, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes, p.CurrentLeaderEpoch = 1<<20, epoch
	r.Topics = []kmsg.FetchRequestTopic{{Topic: "orders", TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return r
}

// A waiting fetch at a deposed leader is answered at once.
func TestAFetchThatWaitsAtADeposedLeader(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	if _, err := s.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Assignment: [][]int32{{2, 3, 1}}}, false); err != nil {
		t.Fatal(err)
	}
	s.led("orders", 0, 2)
	p := dial(t, s.servers[2])
	fetch := fetchOrders(s.topic(1, "orders").ID(), -1)
	fetch.MinBytes, fetch.MaxWaitMillis = 1, 60_000
	fetch.SetVersion(16)
	correlation := p.send(fetch)
	if !s.nodes.Elect(s.log("orders", 0), 3) {
		t.Fatal("not elected")
	}
	r := p.receive(fetch, correlation).(*kmsg.FetchResponse)
	if code := r.Topics[0].Partitions[0].ErrorCode; code != kerr.NotLeaderForPartition.Code && code != kerr.FencedLeaderEpoch.Code {
		t.Errorf("%v", kerr.ErrorForCode(code))
	}
}

func TestReassignAndElect(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{LeaderBalanceInterval: -1})
	admin := kadm.NewClient(s.client())
	if _, err := s.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Assignment: [][]int32{{1, 2}, {2, 3}}}, false); err != nil {
		t.Fatal(err)
	}
	var moves kadm.AlterPartitionAssignmentsReq
	moves.Assign("orders", 0, []int32{3, 2})
	moves.Assign("orders", 1, []int32{2, 9})
	moves.Assign("orders", 7, []int32{1})
	answered, err := admin.AlterPartitionAssignments(t.Context(), moves)
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[int32]*kerr.Error{0: nil, 1: kerr.InvalidReplicaAssignment, 7: kerr.UnknownTopicOrPartition} {
		if got := answered["orders"][number].Err; !errors.Is(got, asError(want)) {
			t.Errorf("partition %d: %v, want %v", number, got, want)
		}
	}
	listed, err := admin.ListPartitionReassignments(t.Context(), kadm.TopicsSet{"orders": {0: {}, 1: {}}})
	if err != nil {
		t.Fatal(err)
	}
	if p, moving := listed["orders"][0]; moving && (!slices.Equal(p.AddingReplicas, []int32{3}) || !slices.Equal(p.RemovingReplicas, []int32{1}) || len(p.Replicas) != 3) {
		t.Errorf("under way: %+v", p)
	}
	s.await("it is where it is to be", func() bool {
		metadata, err := admin.Metadata(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		p := metadata.Topics["orders"].Partitions[0]
		return slices.Equal(p.Replicas, []int32{3, 2}) && p.Leader > 0
	})
	s.await("nothing is under way", func() bool { // another node may answer, which knows it a moment later
		listed, err = admin.ListPartitionReassignments(t.Context(), nil)
		return err == nil && len(listed) == 0
	})
	s.led("orders", 1, 2)
	if !s.nodes.Elect(s.log("orders", 1), 3) {
		t.Fatal("not elected")
	}
	s.led("orders", 1, 3)
	var all kadm.TopicsSet
	all.Add("orders", 1, 5)
	elected, err := admin.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, all)
	if err != nil || elected["orders"][1].Err != nil || !errors.Is(elected["orders"][5].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("elect: %+v, %v", elected, err)
	}
	s.led("orders", 1, 2)
	if elected, err = admin.ElectLeaders(t.Context(), kadm.ElectLiveReplica, all); err != nil || !errors.Is(elected["orders"][1].Err, kerr.ElectionNotNeeded) {
		t.Errorf("unclean: %+v, %v", elected, err)
	}
}

func asError(kind *kerr.Error) error {
	if kind == nil {
		return nil
	}
	return kind
}

// The requests of Kafka's tools when they create topics.
func TestCreateOnSeveralNodes(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	admin := kadm.NewClient(s.client())
	for _, test := range []struct {
		name     string
		replicas int16
		configs  map[string]*string
		want     *kerr.Error
	}{
		{"default", -1, nil, nil},
		{"two", 2, nil, nil},
		{"four", 4, nil, kerr.InvalidReplicationFactor},
		{"insync", 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("2")}, nil},
		{"all", 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("3")}, kerr.InvalidConfig},
		{"unclean", 3, map[string]*string{"unclean.leader.election.enable": kadm.StringPtr("true")}, nil},
	} {
		made, err := admin.CreateTopic(t.Context(), 2, test.replicas, test.configs, test.name)
		if !errors.Is(err, asError(test.want)) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if err != nil {
			continue
		}
		want := test.replicas
		if want < 0 {
			want = 3
		}
		if made.ReplicationFactor != want {
			t.Errorf("%s has %d replicas, want %d", test.name, made.ReplicationFactor, want)
		}
		for node := range s.servers {
			t := s.topic(node, test.name)
			s.await("all nodes tell the replicas", func() bool { return len(t.Partitions()[1].Replicas()) == int(want) })
		}
	}
}
