package kafka

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

func TestApiVersionsAnnouncesTheTable(t *testing.T) {
	s, _ := serve(t, topic.Config{})
	for _, version := range []int16{0, 1, 2, 3, 4, 77} {
		r := apiVersionsRequest()
		p := dial(t, s)
		var got *kmsg.ApiVersionsResponse
		if version == 77 { // answered in version 0
			p.write(frameOf(0, keyAPIVersions, 0, 77, 0, 0, 0, 9, 1, 2, 3))
			got = p.receive(r, 9).(*kmsg.ApiVersionsResponse)
			wantCode(t, "version 77", got.ErrorCode, kerr.UnsupportedVersion)
		} else {
			got = ask[*kmsg.ApiVersionsResponse](p, version, r)
			wantCode(t, fmt.Sprintf("version %d", version), got.ErrorCode, nil)
		}
		if len(got.ApiKeys) != len(requests) {
			t.Fatalf("version %d: %d kinds, want %d", version, len(got.ApiKeys), len(requests))
		}
		for _, kind := range requests {
			at := slices.IndexFunc(got.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == kind.key })
			if at < 0 || got.ApiKeys[at].MinVersion != kind.min || got.ApiKeys[at].MaxVersion != kind.max {
				t.Errorf("version %d: %s is not announced as it is served", version, requestName(kind.key))
			}
		}
	}
	r := apiVersionsRequest()
	r.ClientSoftwareName = "not\x00valid"
	wantCode(t, "a bad name", ask[*kmsg.ApiVersionsResponse](dial(t, s), 3, r).ErrorCode, kerr.InvalidRequest)
}

// Produce is announced from version 0 on; otherwise librdkafka disables compression.
func TestProduceIsAnnouncedFromVersionZero(t *testing.T) {
	for _, kind := range requests {
		if kind.key == keyProduce && kind.min != 0 {
			t.Errorf("Produce is announced from version %d", kind.min)
		}
	}
}

func TestRequestsAreInOrderAndKnown(t *testing.T) {
	for i, kind := range requests {
		if i > 0 && requests[i-1].key >= kind.key {
			t.Errorf("%s comes after %s", requestName(kind.key), requestName(requests[i-1].key))
		}
		if known := kmsg.RequestForKey(kind.key).MaxVersion(); kind.min > kind.max || kind.max > known {
			t.Errorf("%s: versions %d to %d, the codec knows up to %d", requestName(kind.key), kind.min, kind.max, known)
		}
	}
}

// named returns a topic of an answer, or fails.
func named(t *testing.T, r *kmsg.MetadataResponse, name string) kmsg.MetadataResponseTopic {
	t.Helper()
	for _, found := range r.Topics {
		if found.Topic != nil && *found.Topic == name {
			return found
		}
	}
	t.Fatalf("the answer has no topic %q", name)
	return kmsg.MetadataResponseTopic{}
}

func metadataRequest(names ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = kmsg.StringPtr(name)
		r.Topics = append(r.Topics, asked)
	}
	return r
}

func TestMetadata(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 3)
	if _, err := b.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{
		topic.SettingViewOf: "orders", topic.SettingViewWhere: `headers.tag == "paid"`}}, false); err != nil {
		t.Fatal(err)
	}
	p := dial(t, s)
	for version := range int16(13) {
		what := fmt.Sprintf("version %d", version)
		all := metadataRequest()
		if version > 0 {
			all.Topics = nil
			if got := ask[*kmsg.MetadataResponse](p, version, metadataRequest()); len(got.Topics) != 0 {
				t.Errorf("%s: asked for none, got %d topics", what, len(got.Topics))
			}
		}
		got := ask[*kmsg.MetadataResponse](p, version, all)
		if len(got.Topics) != 2 {
			t.Fatalf("%s: %d topics, want 2", what, len(got.Topics))
		}
		for _, name := range []string{"orders", "paid"} {
			found := named(t, got, name)
			wantCode(t, what, found.ErrorCode, nil)
			if len(found.Partitions) != 3 || found.Partitions[2].Leader != b.Node() || len(found.Partitions[2].ISR) != 1 {
				t.Errorf("%s: %s has partitions %v", what, name, found.Partitions)
			}
		}
		if broker := got.Brokers[0]; fmt.Sprintf("%s:%d", broker.Host, broker.Port) != s.Addr() || broker.NodeID != b.Node() {
			t.Errorf("%s: the broker is %v, want %s", what, broker, s.Addr())
		}
		if version >= 2 && *got.ClusterID != b.ClusterID() {
			t.Errorf("%s: cluster %q", what, *got.ClusterID)
		}
	}
	byID := metadataRequest("orders")
	byID.Topics = append(byID.Topics, kmsg.MetadataRequestTopic{TopicID: made.ID()}, kmsg.MetadataRequestTopic{TopicID: topic.ID{9}})
	got := ask[*kmsg.MetadataResponse](p, 12, byID)
	if len(got.Topics) != 2 || *got.Topics[1].Topic != "orders" || got.Topics[1].TopicID != made.ID() {
		t.Fatalf("by name and by id: %v", got.Topics)
	}
	wantCode(t, "an unknown id", got.Topics[0].ErrorCode, kerr.UnknownTopicID)
}

func TestMetadataMakesTopics(t *testing.T) {
	for _, off := range []bool{false, true} {
		s, b := serve(t, topic.Config{AutoCreateOff: off})
		p := dial(t, s)
		ask1 := func(version int16, name string, allowed bool) int16 {
			r := metadataRequest(name)
			r.AllowAutoTopicCreation = allowed
			return ask[*kmsg.MetadataResponse](p, version, r).Topics[0].ErrorCode
		}
		wantCode(t, "not allowed", ask1(9, "new", false), kerr.UnknownTopicOrPartition)
		if off {
			wantCode(t, "turned off", ask1(9, "new", true), kerr.UnknownTopicOrPartition)
			wantCode(t, "turned off", ask1(1, "new", false), kerr.UnknownTopicOrPartition)
			if len(b.Topics()) != 0 {
				t.Error("a topic was made")
			}
			continue
		}
		wantCode(t, "a bad name", ask1(9, "no spaces", true), kerr.InvalidTopicException)
		wantCode(t, "allowed", ask1(9, "new", true), nil)
		wantCode(t, "an old client", ask1(1, "old", false), nil)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	b := startBroker(t, storeInMemory(), topic.Config{})
	s := start(t, b, Options{Advertise: "sluice.example:19092"})
	got := ask[*kmsg.MetadataResponse](dial(t, s), 9, metadataRequest())
	if broker := got.Brokers[0]; broker.Host != "sluice.example" || broker.Port != 19092 {
		t.Errorf("the broker is %v", broker)
	}
	for _, wrong := range []string{"sluice.example", ":9092", "sluice.example:0", "sluice.example:99999"} {
		if err := (Options{Advertise: wrong}).Validate(); err == nil {
			t.Errorf("advertise %q is taken", wrong)
		}
	}
}

func TestListOffsets(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 1)
	create(t, b, "empty", 1)
	for _, times := range [][2]int64{{5000, 5002}, {9000, 9001}, {7000, 7000}} {
		appendTo(t, made, batchWith(func(batch *kmsg.RecordBatch) {
			batch.FirstTimestamp, batch.MaxTimestamp = times[0], times[0]+2
		}, []byte("a"), []byte("b"), []byte("c")))
	}
	if _, err := made.Partitions()[0].DeleteRecords(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ends := made.Partitions()[0].Ends()
	cases := []struct {
		name         string
		topic        string
		version      int16
		at           int64
		epoch        int32
		offset, time int64
		want         *kerr.Error
	}{
		{"latest", "orders", 1, -1, -1, 9, -1, nil},
		{"latest", "orders", 8, -1, ends.Epoch, 9, -1, nil},
		{"earliest", "orders", 1, -2, -1, 1, -1, nil},
		{"earliest local", "orders", 8, -4, -1, 1, -1, nil},
		{"highest time", "orders", 7, -3, -1, 5, 9002, nil},
		{"a time", "orders", 4, 5002, -1, 2, 5002, nil},
		{"between", "orders", 4, 8000, -1, 3, 9000, nil},
		{"after all", "orders", 4, 10_000, -1, -1, -1, nil},
		{"of nothing", "empty", 4, 0, -1, -1, -1, nil},
		{"the highest of nothing", "empty", 7, -3, -1, -1, -1, nil},
		{"the end of nothing", "empty", 7, -1, -1, 0, -1, nil},
		{"unknown topic", "nothing", 4, -1, -1, -1, -1, kerr.UnknownTopicOrPartition},
		{"unknown timestamp", "orders", 8, -9, -1, -1, -1, kerr.InvalidRequest},
		{"a later epoch", "orders", 8, -1, ends.Epoch + 1, -1, -1, kerr.UnknownLeaderEpoch},
	}
	p := dial(t, s)
	for _, c := range cases {
		r := kmsg.NewPtrListOffsetsRequest()
		asked := kmsg.NewListOffsetsRequestTopic()
		asked.Topic = c.topic
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Timestamp, partition.CurrentLeaderEpoch = c.at, c.epoch
		asked.Partitions = append(asked.Partitions, partition)
		r.Topics = append(r.Topics, asked)
		got := ask[*kmsg.ListOffsetsResponse](p, c.version, r).Topics[0].Partitions[0]
		wantCode(t, c.name, got.ErrorCode, c.want)
		if got.Offset != c.offset || got.Timestamp != c.time {
			t.Errorf("%s, version %d: offset %d at %d, want %d at %d", c.name, c.version, got.Offset, got.Timestamp, c.offset, c.time)
		}
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 1)
	fillTopic(t, made, 0, 3, 10)
	epoch := made.Partitions()[0].Ends().Epoch
	p := dial(t, s)
	for _, c := range []struct {
		name           string
		topic          string
		current, asked int32
		epoch          int32
		end            int64
		want           *kerr.Error
	}{
		{"present", "orders", -1, epoch, epoch, 3, nil},
		{"with the present one", "orders", epoch, epoch, epoch, 3, nil},
		{"before all", "orders", -1, -5, -1, -1, nil},
		{"after all", "orders", -1, epoch + 4, -1, -1, nil},
		{"in the future", "orders", epoch + 1, epoch, -1, -1, kerr.UnknownLeaderEpoch},
		{"unknown topic", "nothing", -1, epoch, -1, -1, kerr.UnknownTopicOrPartition},
	} {
		for version := int16(2); version <= 4; version++ {
			r := kmsg.NewPtrOffsetForLeaderEpochRequest()
			asked := kmsg.NewOffsetForLeaderEpochRequestTopic()
			asked.Topic = c.topic
			partition := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			partition.CurrentLeaderEpoch, partition.LeaderEpoch = c.current, c.asked
			asked.Partitions = append(asked.Partitions, partition)
			r.Topics = append(r.Topics, asked)
			got := ask[*kmsg.OffsetForLeaderEpochResponse](p, version, r).Topics[0].Partitions[0]
			wantCode(t, c.name, got.ErrorCode, c.want)
			if got.LeaderEpoch != c.epoch || got.EndOffset != c.end {
				t.Errorf("%s: epoch %d ends at %d, want %d at %d", c.name, got.LeaderEpoch, got.EndOffset, c.epoch, c.end)
			}
		}
	}
}

func TestFindCoordinator(t *testing.T) {
	s, b := serve(t, topic.Config{})
	p := dial(t, s)
	find := func(version int16, kind int8) kmsg.FindCoordinatorResponseCoordinator {
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = kind, "group", []string{"group", "other"}
		got := ask[*kmsg.FindCoordinatorResponse](p, version, r)
		if version < 4 {
			return kmsg.FindCoordinatorResponseCoordinator{
				Key: "group", NodeID: got.NodeID, Host: got.Host, Port: got.Port, ErrorCode: got.ErrorCode, ErrorMessage: got.ErrorMessage}
		}
		return got.Coordinators[0]
	}
	for version := range int16(5) {
		got := find(version, coordinatorOfGroup)
		wantCode(t, "group", got.ErrorCode, nil)
		if address := fmt.Sprintf("%s:%d", got.Host, got.Port); got.NodeID != b.Node() || address != s.Addr() || got.Key != "group" {
			t.Errorf("version %d: the coordinator is %v, want this broker at %s", version, got, s.Addr())
		}
		if version == 0 {
			continue // has no types
		}
		got = find(version, coordinatorOfTransaction)
		wantCode(t, "transaction", got.ErrorCode, nil)
		if got.NodeID != b.Node() {
			t.Errorf("version %d: the coordinator of a transaction is %v, want this broker", version, got)
		}
		wantCode(t, "unknown type", find(version, 9).ErrorCode, kerr.InvalidRequest)
	}
}

func TestInitProducerID(t *testing.T) {
	s, _ := serve(t, topic.Config{})
	p := dial(t, s)
	seen := map[int64]bool{}
	for version := range int16(5) {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.ProducerID, r.ProducerEpoch = 7, 3 // the present id and epoch have no effect
		got := ask[*kmsg.InitProducerIDResponse](p, version, r)
		wantCode(t, "idempotent", got.ErrorCode, nil)
		if got.ProducerID < 0 || got.ProducerEpoch != 0 || seen[got.ProducerID] {
			t.Errorf("version %d: id %d epoch %d, want a new id at epoch 0", version, got.ProducerID, got.ProducerEpoch)
		}
		seen[got.ProducerID] = true
		r.TransactionalID = kmsg.StringPtr("t")
		got = ask[*kmsg.InitProducerIDResponse](p, version, r)
		wantCode(t, "without a timeout", got.ErrorCode, kerr.InvalidTransactionTimeout)
	}
}
