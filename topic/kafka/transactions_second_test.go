package kafka

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/storetest"
	"github.com/sluice-project/sluice/topic/txn"
)

// till is a transactional producer that sends its requests itself.
type till struct {
	*peer
	txn.Producer
}

const tillID = "till"

// openTill returns a producer with the transactional id "till".
func openTill(t *testing.T, s *Server) *till {
	t.Helper()
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis = kmsg.StringPtr(tillID), 60_000
	p := dial(t, s)
	got := ask[*kmsg.InitProducerIDResponse](p, 4, r)
	wantCode(t, "init", got.ErrorCode, nil)
	return &till{p, producerOf(got.ProducerID, got.ProducerEpoch)}
}

// produce sends a record to a partition of "orders".
func (p *till) produce(version int16, partition, sequence int32) int16 {
	p.t.Helper()
	r := produceRequest("orders", partition, batchWith(func(b *kmsg.RecordBatch) {
		b.ProducerID, b.ProducerEpoch, b.FirstSequence = p.ID, p.Epoch, sequence
		b.Attributes |= 1 << 4 // transactional
	}, []byte("order")))
	r.TransactionID = kmsg.StringPtr(tillID)
	return ask[*kmsg.ProduceResponse](p.peer, version, r).Topics[0].Partitions[0].ErrorCode
}

func (p *till) add(partition int32) int16 {
	p.t.Helper()
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch = tillID, p.ID, p.Epoch
	r.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "orders", Partitions: []int32{partition}}}
	return ask[*kmsg.AddPartitionsToTxnResponse](p.peer, 3, r).Topics[0].Partitions[0].ErrorCode
}

func (p *till) end(version int16, commit bool) (txn.Producer, int16) {
	p.t.Helper()
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = tillID, p.ID, p.Epoch, commit
	got := ask[*kmsg.EndTxnResponse](p.peer, version, r)
	return producerOf(got.ProducerID, got.ProducerEpoch), got.ErrorCode
}

// ends ends a transaction, and goes on as the answer says.
func (p *till) ends(version int16, commit bool) {
	p.t.Helper()
	got, code := p.end(version, commit)
	wantCode(p.t, "end", code, nil)
	p.Producer = got
}

func (p *till) commitOffset(version int16) int16 {
	p.t.Helper()
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.TransactionalID, r.Group, r.ProducerID, r.ProducerEpoch, r.Generation = tillID, "billing", p.ID, p.Epoch, -1
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset = 1
	r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "orders", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{part}}}
	return ask[*kmsg.TxnOffsetCommitResponse](p.peer, version, r).Topics[0].Partitions[0].ErrorCode
}

// Records and offsets join the transaction by themselves from their version of KIP-890 on, and only then.
func TestPartitionsAndGroupsJoinTransactions(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	p := openTill(t, s)
	wantCode(t, "Produce 11 without AddPartitionsToTxn", p.produce(11, 0, 0), kerr.InvalidTxnState)
	wantCode(t, "TxnOffsetCommit 4 without AddOffsetsToTxn", p.commitOffset(4), kerr.InvalidTxnState)
	wantCode(t, "Produce 12, not the first of its epoch", p.produce(12, 0, 1), kerr.OutOfOrderSequenceNumber)
	wantCode(t, "Produce 12", p.produce(12, 0, 0), nil)
	wantCode(t, "Produce 12 again", p.produce(12, 0, 0), nil)
	wantCode(t, "TxnOffsetCommit 5", p.commitOffset(5), nil)
	described, err := b.Transactions().Describe(t.Context(), tillID)
	if err != nil || described.State != txn.Ongoing || !described.Has("orders", 0) || described.Has("orders", 1) {
		t.Errorf("described %+v, %v; want it ongoing with partition 0", described, err)
	}
	p.ends(5, true)
	if got := values(t, s, "orders", 1, committed); len(got) != 1 {
		t.Errorf("committed %q, want one record", got)
	}
}

// EndTxn 5 raises the epoch: it is idempotent, and fences what is late. It may abort nothing.
func TestEndsRaiseTheEpoch(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	p := openTill(t, s)
	wantCode(t, "produce", p.produce(12, 0, 0), nil)
	former := *p
	p.ends(5, true)
	if want := producerOf(former.ID, former.Epoch+1); p.Producer != want {
		t.Fatalf("it goes on as %v, want %v", p.Producer, want)
	}
	if again, code := former.end(5, true); code != 0 || again != p.Producer {
		t.Errorf("the end repeated: %v, %v; want the same answer", again, kerr.ErrorForCode(code))
	}
	_, code := former.end(5, false)
	wantCode(t, "the other end", code, kerr.ProducerFenced)
	wantCode(t, "a late record in a partition of the transaction", former.produce(12, 0, 1), kerr.InvalidProducerEpoch)
	wantCode(t, "a late record in another partition", former.produce(12, 1, 0), kerr.InvalidProducerEpoch)
	wantCode(t, "late offsets", former.commitOffset(5), kerr.InvalidProducerEpoch)
	_, code = p.end(5, true)
	wantCode(t, "a commit of nothing", code, kerr.InvalidTxnState)
	before := p.Epoch
	p.ends(5, false)
	if p.Epoch != before+1 {
		t.Errorf("an abort of nothing leads to epoch %d, want %d", p.Epoch, before+1)
	}
	wantCode(t, "the next transaction", p.produce(12, 0, 0), nil)
	_, code = p.end(4, true) // a client of version 1
	wantCode(t, "EndTxn 4", code, nil)
	wantCode(t, "add", p.add(0), nil)
	wantCode(t, "version 1 goes on with its epoch", p.produce(11, 0, 1), nil)
	p.ends(5, true)
	if got := values(t, s, "orders", 3, committed); len(got) != 3 {
		t.Errorf("committed %q, want three records", got)
	}
}

// After the last epoch of a producer id comes another id.
func TestTheEpochsOfAnIDEnd(t *testing.T) {
	store := storetest.NewMemory()
	record := fmt.Appendf(nil, `{"format":1,"state":"Empty","producer":{"id":77,"epoch":%d},"last_epoch":-1,"timeout_ms":60000,"changed_ms":%d}`, math.MaxInt16-1, time.Now().UnixMilli())
	if _, err := store.Meta().Put(t.Context(), txn.Prefix+tillID, record, 0); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{})
	create(t, b, "orders", 1)
	p := &till{peer: dial(t, s), Producer: producerOf(77, math.MaxInt16-1)}
	wantCode(t, "produce", p.produce(12, 0, 0), nil)
	former := *p
	until.True(t, "it is ended", func() bool { // CONCURRENT_TRANSACTIONS until it has ended everywhere
		got, code := former.end(5, true)
		p.Producer = got
		return code == 0
	})
	if p.ID == former.ID || p.Epoch != 0 {
		t.Errorf("it goes on as %v, want another id with epoch 0", p.Producer)
	}
	if again, code := former.end(5, true); code != 0 || again != p.Producer {
		t.Errorf("the end repeated: %v, %v; want the same answer", again, kerr.ErrorForCode(code))
	}
	wantCode(t, "a late record", former.produce(12, 0, 1), kerr.InvalidProducerEpoch)
	wantCode(t, "the next transaction", p.produce(12, 0, 0), nil)
	p.ends(5, true)
	if got := values(t, s, "orders", 2, committed); len(got) != 2 {
		t.Errorf("committed %q, want two records", got)
	}
}

// A producer whose transaction was aborted because it took too long goes on after an abort of its own.
func TestAnAbortAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		create(t, b, "orders", 1)
		p, err := b.Transactions().Init(t.Context(), tillID, time.Minute, nil)
		if err == nil {
			err = b.Transactions().AddPartitions(t.Context(), tillID, p, map[string][]int32{"orders": {0}})
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := b.Transactions().EndAndBump(t.Context(), tillID, p, true); err == nil {
			t.Error("it was committed, want it aborted")
		}
		if next, err := b.Transactions().EndAndBump(t.Context(), tillID, p, false); err != nil || next.Epoch != p.Epoch+1 {
			t.Errorf("aborted: %v, %v; want epoch %d", next, err, p.Epoch+1)
		}
	})
}

// A cluster uses version 2 once all of its nodes know it; until then its requests do what version 1 does.
func TestVersion2NeedsAllNodes(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{})
	create(t, b, "orders", 1)
	inUse := func(version int16) (in bool) {
		got := ask[*kmsg.ApiVersionsResponse](dial(t, s), version, apiVersionsRequest())
		if len(got.SupportedFeatures) != 1 || got.SupportedFeatures[0].Name != transactionVersion || got.SupportedFeatures[0].MaxVersion != 2 ||
			got.SupportedFeatures[0].MinVersion != 4-version {
			t.Fatalf("version %d supports %+v", version, got.SupportedFeatures)
		}
		in = len(got.FinalizedFeatures) == 1 && got.FinalizedFeatures[0].MaxVersionLevel == 2
		if want := int64(len(got.FinalizedFeatures)); got.FinalizedFeaturesEpoch != want {
			t.Errorf("the epoch of the features is %d, want %d", got.FinalizedFeaturesEpoch, want)
		}
		return in
	}
	if !inUse(3) || !inUse(4) {
		t.Error("a server alone does not use version 2")
	}
	setNodesVersion(t, store, b.Node(), 0)
	until.True(t, "the node of an earlier version is seen", func() bool { return b.TransactionsVersion() == 1 })
	if inUse(3) || inUse(4) {
		t.Error("version 2 is used with a node of an earlier version")
	}
	p := openTill(t, s)
	wantCode(t, "Produce 12 without AddPartitionsToTxn", p.produce(12, 0, 0), kerr.InvalidTxnState)
	wantCode(t, "TxnOffsetCommit 5 without AddOffsetsToTxn", p.commitOffset(5), kerr.InvalidTxnState)
	wantCode(t, "add", p.add(0), nil)
	wantCode(t, "Produce 12", p.produce(12, 0, 0), nil)
	before := p.Producer
	if p.ends(5, true); p.Producer != before {
		t.Errorf("it goes on as %v, want %v", p.Producer, before)
	}
	setNodesVersion(t, store, b.Node(), 2)
	until.True(t, "the node was upgraded", func() bool { return b.TransactionsVersion() == 2 })
	if !inUse(4) {
		t.Error("version 2 is not used once all nodes know it")
	}
}

// setNodesVersion changes the version of transactions in a node's record.
func setNodesVersion(t *testing.T, store *storetest.Memory, node int32, version int16) {
	t.Helper()
	item, err := store.Meta().Get(t.Context(), catalog.NodeKey(node))
	if err != nil {
		t.Fatal(err)
	}
	record, err := catalog.ReadNode(item)
	if err != nil {
		t.Fatal(err)
	}
	record.Transactions = version
	value, err := record.Encode()
	if err == nil {
		_, err = store.Meta().Put(t.Context(), item.Key, value, item.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}
