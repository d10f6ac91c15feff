package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// Stalled requests hold no memory that others wait for; while no other waits, they may take their
// time.
func TestStalledRequestsGiveWay(t *testing.T) {
	t.Parallel()
	var lines log
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	create(t, b, "orders", 1)
	s := start(t, b, Options{MaxRequestBytes: 1 << 20, RequestMemory: 2 << 20, Logger: lines.logger()})
	r := produceRequest("orders", 0, batchOf(make([]byte, 1<<19)))
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
	slow := dial(t, s)
	slow.write(frame[:1000])
	<-time.After(stallTime + stallTime/2)
	slow.write(frame[1000:])
	answered := slow.receive(r, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	wantCode(t, "a slow request", answered.ErrorCode, nil)

	stalled := make([]*peer, 10)
	for i := range stalled {
		stalled[i] = dial(t, s)
		stalled[i].write(frame[:1000])
	}
	const stalls = "comes too slowly"
	// The first ones may have been ended before this looks.
	until.True(t, "they hold all memory", func() bool { return s.requests.Contended() || lines.has(stalls) })
	ask[*kmsg.ApiVersionsResponse](dial(t, s), 3, apiVersionsRequest())
	lines.await(t, stalls)
	for _, p := range stalled {
		_ = p.conn.Close()
	}
	until.True(t, "their memory is back", func() bool { return s.requests.Used() == 0 })
}

// Many slow consumers cannot keep all memory for answers: others get theirs long before the write
// timeout.
func TestSlowConsumersGiveWay(t *testing.T) {
	t.Parallel()
	var lines log
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	s := start(t, b, Options{FetchMemory: 1 << 20, Logger: lines.logger()})
	to := create(t, b, "orders", 1)
	for range 40 {
		appendTo(t, to, batchOf(make([]byte, 1<<20-1000)))
	}
	greedy := fetchRequest("orders", 0, 0)
	greedy.MaxBytes, greedy.Topics[0].Partitions[0].PartitionMaxBytes = 64<<20, 64<<20
	askUnread(t, s, 20, 30, greedy) // more than the network buffers
	const slow = "receives its answer too slowly"
	until.True(t, "they hold all memory", func() bool { return s.answers.Contended() || lines.has(slow) })
	good := dial(t, s)
	for offset := range int64(3) {
		until.True(t, "records come", func() bool {
			r := fetchRequest("orders", 0, offset)
			r.MaxWaitMillis = 5000
			return len(ask[*kmsg.FetchResponse](good, 12, r).Topics[0].Partitions[0].RecordBatches) > 0
		})
	}
	lines.await(t, slow)
}
