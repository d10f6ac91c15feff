package kafka

import (
	"context"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// slowStore is a store that waits before it opens logs.
type slowStore struct {
	topic.Store
	once    sync.Once
	reached chan struct{} // closed when the first log is requested
	goOn    chan struct{} // closed to let it continue
}

func (s *slowStore) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	s.once.Do(func() { close(s.reached) })
	select {
	case <-s.goOn:
		return s.Store.OpenLog(ctx, name, nodes)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A topic is being created for a client that disconnects, while others ask for it: none of them is
// told that it does not exist, and all get the same topic.
func TestATopicThatIsBeingMadeForAnother(t *testing.T) {
	store := &slowStore{Store: storetest.NewMemory(), reached: make(chan struct{}), goOn: make(chan struct{})}
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{})
	first := dial(t, s)
	r := metadataRequest("orders")
	r.Version, r.AllowAutoTopicCreation = 12, true
	first.send(r)
	<-store.reached

	others := make([]*peer, 4)
	correlations := make([]int32, len(others))
	for i := range others {
		others[i] = dial(t, s)
		correlations[i] = others[i].send(r)
	}
	until.True(t, "all are connected", func() bool { return s.connected() == 1+len(others) })
	_ = first.conn.Close()
	until.True(t, "the first has left", func() bool { return s.connected() == len(others) })
	close(store.goOn)
	made := map[topic.ID]bool{}
	for i, p := range others {
		got := p.receive(r, correlations[i]).(*kmsg.MetadataResponse).Topics[0]
		until.True(t, "a leader", func() bool {
			wantCode(t, "metadata", got.ErrorCode, nil)
			if len(got.Partitions) > 0 && got.Partitions[0].Leader == b.Node() {
				return true
			}
			got = p.receive(r, p.send(r)).(*kmsg.MetadataResponse).Topics[0]
			return false
		})
		made[got.TopicID] = true
	}
	if len(made) != 1 {
		t.Errorf("the topic was made %d times", len(made))
	}
}
