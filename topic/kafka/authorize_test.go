package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/kafka/kafkatest"
	"github.com/sluice-project/sluice/topic/storetest"
)

// needs are the resources that each kind of request needs a right to, of those that it names. Kinds that
// list what the client may see, and those that need nothing, have none.
var needs = map[int16][]auth.Resource{
	0:  {auth.Topic, auth.Transaction},
	1:  {auth.Topic},
	2:  {auth.Topic},
	3:  {auth.Topic},
	8:  {auth.Topic, auth.Group},
	9:  {auth.Topic, auth.Group},
	10: {auth.Group},
	11: {auth.Group},
	12: {auth.Group},
	13: {auth.Group},
	14: {auth.Group},
	15: {auth.Group},
	16: {},
	17: {},
	18: {},
	19: {auth.Topic},
	20: {auth.Topic},
	21: {auth.Topic},
	22: {auth.Transaction},
	23: {auth.Topic},
	24: {auth.Topic, auth.Transaction},
	25: {auth.Group, auth.Transaction},
	26: {auth.Transaction},
	28: {auth.Topic, auth.Group, auth.Transaction},
	29: {auth.Cluster},
	30: {auth.Cluster},
	31: {auth.Cluster},
	32: {auth.Topic},
	33: {auth.Topic},
	35: {auth.Cluster},
	36: {},
	37: {auth.Topic},
	42: {auth.Group},
	43: {auth.Cluster},
	44: {auth.Topic},
	45: {auth.Cluster},
	46: {auth.Cluster},
	47: {auth.Topic, auth.Group},
	48: {auth.Cluster},
	49: {auth.Cluster},
	50: {auth.Cluster},
	51: {auth.Cluster},
	60: {},
	61: {auth.Topic},
	65: {auth.Transaction},
	66: {},
	68: {auth.Topic, auth.Group},
	69: {auth.Group},
	75: {auth.Topic},
	76: {auth.Topic, auth.Group},
	77: {auth.Group},
	78: {auth.Group}, // and the topics, once the member has a session
	79: {auth.Group},
	90: {auth.Group}, // and the topics of a share group
	91: {auth.Group},
	92: {auth.Group},
}

var refusedCodes = map[auth.Resource]int16{
	auth.Cluster: kerr.ClusterAuthorizationFailed.Code, auth.Topic: kerr.TopicAuthorizationFailed.Code,
	auth.Group: kerr.GroupAuthorizationFailed.Code, auth.Transaction: kerr.TransactionalIDAuthorizationFailed.Code,
}

// Each kind of request, in its first and its last version, has the code of a resource that the client
// has no right to, and no such code for another. A kind without a row above fails.
func TestRequestsNeedRights(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	all := newAccounts("boss")
	var without atomic.Int32 // a resource
	all.add(&account{name: "shop", may: func(_ int16, of auth.Resource, _ string) bool { return int32(of) != without.Load() }})
	s := start(t, b, Options{Accounts: all})
	boss, p := dial(t, s), dial(t, s)
	boss.authenticate("boss")
	p.authenticate("shop")
	for _, kind := range requests {
		need, known := needs[kind.key]
		if !known {
			t.Errorf("%s has no row in needs", requestName(kind.key))
		}
		if !known || kind.key == keySASLHandshake || kind.key == keySASLAuthenticate {
			continue
		}
		for _, version := range slices.Compact([]int16{kind.min, kind.max}) {
			for refused := auth.Cluster; refused <= auth.Transaction; refused++ {
				without.Store(int32(refused))
				name := fmt.Sprintf("of-%d-%d-%d", kind.key, version, refused)
				names := kafkatest.Names{Topic: name, TopicID: create(t, b, name, 1).ID(), Group: "workers", Transaction: "tx"}
				commits := kafkatest.Request(keyOffsetCommit, 2, names).(*kmsg.OffsetCommitRequest)
				commits.Generation = -1
				ask[*kmsg.OffsetCommitResponse](boss, 2, commits)
				codes := kafkatest.Codes(ask[kmsg.Response](p, version, kafkatest.Request(kind.key, version, names)))
				for resource, code := range refusedCodes {
					want := resource == refused && slices.Contains(need, resource) && !unspoken(kind.key, version, resource)
					if codes[code] != want {
						t.Errorf("%s version %d without a right to resource %d: code %d is %v, want %v; got %v",
							requestName(kind.key), version, refused, code, codes[code], want, codes)
					}
				}
			}
		}
	}
}

// unspoken reports whether a version has no field for the resource, or for its code.
func unspoken(key, version int16, of auth.Resource) bool {
	return version < 3 && (key == keyProduce && of == auth.Transaction || key == 35)
}

// Refused requests change nothing.
func TestRefusedRequestsChangeNothing(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	orders := create(t, b, "orders", 1)
	all := newAccounts("boss")
	all.add(&account{name: "nobody", may: func(int16, auth.Resource, string) bool { return false }})
	s := start(t, b, Options{Accounts: all})
	boss, p := dial(t, s), dial(t, s)
	boss.authenticate("boss")
	p.authenticate("nobody")
	names := kafkatest.Names{Topic: "orders", TopicID: orders.ID(), Group: "workers", Transaction: "tx"}
	commits := kafkatest.Request(keyOffsetCommit, 2, names).(*kmsg.OffsetCommitRequest)
	commits.Generation, commits.Topics[0].Partitions[0].Offset = -1, 1
	ask[*kmsg.OffsetCommitResponse](boss, 2, commits)
	ask[*kmsg.ProduceResponse](boss, 11, produceRequest("orders", 0, batchOf([]byte("1"))))
	state := func() string {
		t.Helper()
		ends := orders.Partitions()[0].Ends()
		offsets, err := b.Groups().Offsets("workers")
		groups, failed := b.Groups().List()
		transactions, wrong := b.Transactions().List(t.Context())
		if err := cmp.Or(err, failed, wrong); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(len(b.Topics()), len(orders.Partitions()), orders.Own(), ends, offsets, groups, len(transactions))
	}
	before := state()
	for _, kind := range requests {
		if kind.key == keySASLHandshake || kind.key == keySASLAuthenticate {
			continue
		}
		for _, version := range []int16{kind.min, kind.max} {
			for _, name := range []string{"orders", "new"} {
				names.Topic = name
				ask[kmsg.Response](p, version, changing(kafkatest.Request(kind.key, version, names)))
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("%s\nwant what was before:\n%s", after, before)
	}
}

// changing completes a request so that it would change something.
func changing(r kmsg.Request) kmsg.Request {
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		r.Acks, r.Topics[0].Partitions[0].Records = -1, batchOf([]byte("2"))
	case *kmsg.OffsetCommitRequest:
		r.Generation = -1
	case *kmsg.JoinGroupRequest:
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = 10_000, 10_000, "consumer"
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	case *kmsg.CreateTopicsRequest:
		r.Topics[0].NumPartitions, r.Topics[0].ReplicationFactor = 1, 1
	case *kmsg.CreatePartitionsRequest:
		r.Topics[0].Count = 2
	case *kmsg.DeleteRecordsRequest:
		r.Topics[0].Partitions[0].Offset = 1
	case *kmsg.InitProducerIDRequest:
		r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = 1000, -1, -1
	case *kmsg.MetadataRequest:
		r.AllowAutoTopicCreation, r.Topics[0].TopicID = true, topic.ID{}
	}
	return r
}

// Lists leave out what the client may not see.
func TestListsLeaveOutWhatMayNotBeSeen(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	all := newAccounts("boss")
	all.add(&account{name: "shop", may: func(_ int16, of auth.Resource, name string) bool { return of == auth.Cluster || name == "ours" }})
	s := start(t, b, Options{Accounts: all})
	boss, p := dial(t, s), dial(t, s)
	boss.authenticate("boss")
	p.authenticate("shop")
	for _, name := range []string{"ours", "theirs"} {
		create(t, b, name, 1)
	}
	for _, name := range []string{"ours", "theirs"} {
		for _, topicName := range []string{"ours", "theirs"} {
			commits := kafkatest.Request(keyOffsetCommit, 2, kafkatest.Names{Topic: topicName, Group: name}).(*kmsg.OffsetCommitRequest)
			commits.Generation = -1
			ask[*kmsg.OffsetCommitResponse](boss, 2, commits)
		}
		starts := kafkatest.Request(keyInitProducerID, 4, kafkatest.Names{Transaction: name}).(*kmsg.InitProducerIDRequest)
		starts.TransactionTimeoutMillis, starts.ProducerID, starts.ProducerEpoch = 1000, -1, -1
		started := ask[*kmsg.InitProducerIDResponse](boss, 4, starts)
		adds := kmsg.NewPtrAddPartitionsToTxnRequest()
		adds.TransactionalID, adds.ProducerID, adds.ProducerEpoch = name, started.ProducerID, started.ProducerEpoch
		adds.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "ours", Partitions: []int32{0}}, {Topic: "theirs", Partitions: []int32{0}}}
		wantCode(t, "add partitions", ask[*kmsg.AddPartitionsToTxnResponse](boss, 3, adds).Topics[0].Partitions[0].ErrorCode, nil)
	}
	described := kmsg.NewPtrDescribeTransactionsRequest()
	described.TransactionalIDs = []string{"ours"}
	offsets := kmsg.NewPtrOffsetFetchRequest()
	offsets.Group = "ours"
	for what, got := range map[string][]string{
		"topics": namesOf(ask[*kmsg.MetadataResponse](p, 12, kmsg.NewPtrMetadataRequest()).Topics,
			func(t kmsg.MetadataResponseTopic) string { return *t.Topic }),
		"topics, page by page": namesOf(ask[*kmsg.DescribeTopicPartitionsResponse](p, 0, kmsg.NewPtrDescribeTopicPartitionsRequest()).Topics,
			func(t kmsg.DescribeTopicPartitionsResponseTopic) string { return *t.Topic }),
		"topics on disk": namesOf(ask[*kmsg.DescribeLogDirsResponse](p, 4, kmsg.NewPtrDescribeLogDirsRequest()).Dirs[0].Topics,
			func(t kmsg.DescribeLogDirsResponseDirTopic) string { return t.Topic }),
		"groups": namesOf(ask[*kmsg.ListGroupsResponse](p, 4, kmsg.NewPtrListGroupsRequest()).Groups,
			func(g kmsg.ListGroupsResponseGroup) string { return g.Group }),
		"offsets of a group": namesOf(ask[*kmsg.OffsetFetchResponse](p, 7, offsets).Topics,
			func(t kmsg.OffsetFetchResponseTopic) string { return t.Topic }),
		"transactions": namesOf(ask[*kmsg.ListTransactionsResponse](p, 0, kmsg.NewPtrListTransactionsRequest()).TransactionStates,
			func(of kmsg.ListTransactionsResponseTransactionState) string { return of.TransactionalID }),
		"topics of a transaction": namesOf(ask[*kmsg.DescribeTransactionsResponse](p, 0, described).TransactionStates[0].Topics,
			func(t kmsg.DescribeTransactionsResponseTransactionStateTopic) string { return t.Topic }),
	} {
		if !slices.Equal(got, []string{"ours"}) {
			t.Errorf("%s: %v, want ours", what, got)
		}
	}
}

func namesOf[T any](all []T, name func(T) string) (names []string) {
	for _, one := range all {
		names = append(names, name(one))
	}
	return names
}

// Some requests need rights to more than the topic that they name.
func TestRightsToOtherResources(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	create(t, b, "orders", 1)
	if _, err := b.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{
		topic.SettingViewOf: "orders", topic.SettingViewWhere: `headers.tag == "paid"`}}, false); err != nil {
		t.Fatal(err)
	}
	all := newAccounts()
	all.add(&account{name: "shop", may: func(request int16, of auth.Resource, name string) bool {
		return of == auth.Topic && name != "orders" && request != keyCreateTopics
	}})
	p := dial(t, start(t, b, Options{Accounts: all}))
	p.authenticate("shop")
	read := ask[*kmsg.FetchResponse](p, 12, fetchRequest("paid", 0, 0))
	wantCode(t, "read a view without a right to its source", read.Topics[0].Partitions[0].ErrorCode, kerr.TopicAuthorizationFailed)
	asks := metadataRequest("new", "paid")
	asks.AllowAutoTopicCreation, asks.IncludeTopicAuthorizedOperations, asks.IncludeClusterAuthorizedOperations = true, true, true
	got := ask[*kmsg.MetadataResponse](p, 8, asks)
	wantCode(t, "create by asking", named(t, got, "new").ErrorCode, kerr.UnknownTopicOrPartition)
	if _, err := b.Topic("new"); !errors.Is(err, topic.ErrNoTopic) {
		t.Errorf("a topic is created because somebody without the right asks for it: %v", err)
	}
	if may := named(t, got, "paid").AuthorizedOperations; may != 1<<3|1<<4|1<<6|1<<7|1<<8|1<<10|1<<11 {
		t.Errorf("operations on a topic: %b, want all but to create it", may)
	}
	if got.AuthorizedOperations != 0 {
		t.Errorf("operations on the cluster: %b, want none", got.AuthorizedOperations)
	}
	producer := ask[*kmsg.InitProducerIDResponse](p, 4, kmsg.NewPtrInitProducerIDRequest())
	wantCode(t, "a producer's id", producer.ErrorCode, kerr.ClusterAuthorizationFailed)
	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"}}
	wantCode(t, "a broker's settings", ask[*kmsg.DescribeConfigsResponse](p, 4, configs).Resources[0].ErrorCode, kerr.ClusterAuthorizationFailed)
}

// A view that an account with a right to its source has made is read with a right to the view alone. Its filter is changed
// by those who may read the source.
func TestViewsLendTheirSource(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	create(t, b, "orders", 1)
	all := newAccounts()
	all.add(&account{name: "owner"})
	all.add(&account{name: "guest", may: func(_ int16, of auth.Resource, name string) bool { return of == auth.Topic && name != "orders" }})
	s := start(t, b, Options{Accounts: all})
	as := func(name string) *peer {
		p := dial(t, s)
		p.authenticate(name)
		return p
	}
	owner, guest := as("owner"), as("guest")
	text := func(s string) *string { return &s }
	makeView := func(p *peer, name string) {
		t.Helper()
		r := kmsg.NewPtrCreateTopicsRequest()
		r.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: -1, ReplicationFactor: -1, Configs: []kmsg.CreateTopicsRequestTopicConfig{
			{Name: topic.SettingViewOf, Value: text("orders")}, {Name: topic.SettingViewWhere, Value: text("true")}}}}
		wantCode(t, "make the view "+name, ask[*kmsg.CreateTopicsResponse](p, 5, r).Topics[0].ErrorCode, nil)
	}
	makeView(owner, "lent")
	makeView(guest, "taken")
	read := func(what string, name string, want *kerr.Error) {
		t.Helper()
		got := ask[*kmsg.FetchResponse](guest, 12, fetchRequest(name, 0, 0))
		wantCode(t, what, got.Topics[0].Partitions[0].ErrorCode, want)
	}
	read("read what the owner lends", "lent", nil)
	read("read a view of one's own", "taken", kerr.TopicAuthorizationFailed)
	read("read the source", "orders", kerr.TopicAuthorizationFailed)
	alter := func(p *peer, what, name string, want *kerr.Error) {
		t.Helper()
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name,
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: topic.SettingViewWhere, Value: text(`key == "x"`)}}}}
		wantCode(t, what, ask[*kmsg.IncrementalAlterConfigsResponse](p, 1, r).Resources[0].ErrorCode, want)
	}
	alter(guest, "change what the owner lends", "lent", kerr.TopicAuthorizationFailed)
	alter(guest, "change a view of one's own", "taken", nil)
	alter(owner, "change what one lends", "lent", nil)
}
