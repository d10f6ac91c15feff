package bench

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchCounter counts the bytes of answers to fetches.
type fetchCounter struct{ bytes atomic.Int64 }

var _ kgo.HookBrokerRead = (*fetchCounter)(nil)

func (c *fetchCounter) OnBrokerRead(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if key == kmsg.Fetch.Int16() {
		c.bytes.Add(int64(bytes))
	}
}

// batchCounter counts the batches that are produced.
type batchCounter struct{ batches atomic.Int64 }

var _ kgo.HookProduceBatchWritten = (*batchCounter)(nil)

func (c *batchCounter) OnProduceBatchWritten(kgo.BrokerMetadata, string, int32, kgo.ProduceBatchMetrics) {
	c.batches.Add(1)
}
