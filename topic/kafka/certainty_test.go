package kafka

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// lostTouch is a store whose metadata does not say what is newest while it is silent, as that of a node which others do not reach.
type lostTouch struct {
	topic.Store
	silent atomic.Bool
}

type lostMeta struct {
	topic.Meta
	of *lostTouch
}

func (s *lostTouch) Meta() topic.Meta { return lostMeta{s.Store.Meta(), s} }

func (m lostMeta) Sync(ctx context.Context) error {
	if m.of.silent.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return m.Meta.Sync(ctx)
}

// A leader that may have been replaced does not tell clients that what it has never heard of is lost: they would begin again from the start.
func TestALeaderThatMayHaveBeenReplaced(t *testing.T) {
	store := &lostTouch{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{})
	made := create(t, b, "orders", 2)
	fillTopic(t, made, 0, 3, 10)
	epoch := made.Partitions()[0].Ends().Epoch
	p := dial(t, s)
	fetch := func(offset int64) int16 {
		r := fetchRequest("orders", 0, offset)
		return ask[*kmsg.FetchResponse](p, 12, r).Topics[0].Partitions[0].ErrorCode
	}
	endOf := func(epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		r.ReplicaID = -1
		asked := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		asked.CurrentLeaderEpoch, asked.LeaderEpoch = -1, epoch
		r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{asked}}}
		return ask[*kmsg.OffsetForLeaderEpochResponse](p, 4, r).Topics[0].Partitions[0]
	}
	for _, silent := range []bool{false, true, false} {
		store.silent.Store(silent)
		wantCode(t, "fetch at the end", fetch(3), nil)
		if end := endOf(epoch); end.ErrorCode != 0 || end.EndOffset != 3 {
			t.Errorf("silent %v: the present epoch ends at %+v", silent, end)
		}
		beyond, later := fetch(4), endOf(epoch+1)
		if !silent {
			wantCode(t, "fetch beyond the end", beyond, kerr.OffsetOutOfRange)
			if later.ErrorCode != 0 || later.EndOffset != -1 || later.LeaderEpoch != -1 {
				t.Errorf("a later epoch ends at %+v", later)
			}
			continue
		}
		for what, code := range map[string]int16{"an offset beyond the end": beyond, "a later epoch": later.ErrorCode} {
			if err := kerr.ErrorForCode(code); !kerr.IsRetriable(err) {
				t.Errorf("%s, of a leader that is not certain: %v, want an error after which clients ask again", what, err)
			}
		}
	}
}
