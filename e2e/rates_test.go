//go:build long

package e2e

import (
	"context"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// rateSpan is how long what passes is counted.
const rateSpan = 6 * time.Second

// holdsRate has clients at work until what passes them in a span is a rate within 5 %. On a busy machine that may take several.
func holdsRate(t *testing.T, when string, rate float64, clients []func(ctx context.Context, passed *atomic.Int64)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var passed atomic.Int64
	var work sync.WaitGroup
	for _, client := range clients {
		work.Go(func() { client(ctx, &passed) })
	}
	defer work.Wait()
	defer cancel()
	until.True(t, when+", the rate holds", func() bool {
		before, began := passed.Load(), time.Now()
		<-time.After(rateSpan)
		got := float64(passed.Load()-before) / (rate * time.Since(began).Seconds())
		t.Logf("%s: %.3f of the rate", when, got)
		return math.Abs(got-1) <= 0.05
	})
}

// setQuota sets quotas.
func (s *server) setQuota(change string) {
	s.t.Helper()
	until.True(s.t, "set a quota", func() bool { return s.as(adminToken, "PATCH", "/v1/quotas", change).status == http.StatusOK })
}

// rateCluster is three nodes with accounts, and a topic.
type rateCluster struct {
	*nodes
	till string          // a producer's token
	led  map[int32]int32 // a partition that each node leads
}

func startRateCluster(t *testing.T) *rateCluster {
	t.Helper()
	c := &rateCluster{nodes: nodesWithAccounts(t, 3), led: map[int32]int32{}}
	c.till = c.all[0].token("till", access.Producer)
	admin := kadm.NewClient(c.client(adminToken))
	until.Succeeds(t, "create a topic", func() error {
		_, err := admin.CreateTopic(t.Context(), 12, 3, nil, "orders")
		return err
	})
	until.True(t, "each node leads a partition", func() bool {
		found, err := admin.ListTopics(t.Context(), "orders")
		if err != nil {
			return false
		}
		for _, p := range found["orders"].Partitions {
			c.led[p.Leader] = p.Partition
		}
		delete(c.led, -1)
		return len(c.led) == 3
	})
	return c
}

func (c *rateCluster) client(token string, options ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(c.brokers()...), kgo.SASL(plain.Auth{User: "any", Pass: token}.AsMechanism()), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(made.Close)
	return made
}

// producers returns four clients for each of some nodes, which send records to a partition that the node leads.
func (c *rateCluster) producers(leaders ...int32) (all []func(ctx context.Context, passed *atomic.Int64)) {
	const size = 16_000
	for i := range 4 * len(leaders) {
		partition := c.led[leaders[i%len(leaders)]]
		by := c.client(c.till, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		all = append(all, func(ctx context.Context, passed *atomic.Int64) {
			for ctx.Err() == nil {
				if by.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: partition, Value: make([]byte, size)}).FirstErr() == nil {
					passed.Add(size)
				}
			}
		})
	}
	return all
}

// Producers of one account at three nodes have the rate of its quota together: at partitions of all nodes, of one, of another and of two.
func TestByteRateOfAClusterIsOne(t *testing.T) {
	t.Parallel()
	const rate = 1e6
	c := startRateCluster(t)
	c.all[0].setQuota(`{"user":"till","values":{"producer_byte_rate":1000000}}`)
	holdsRate(t, "at all nodes", rate, c.producers(1, 2, 3))
	holdsRate(t, "at one node", rate, c.producers(1))
	holdsRate(t, "at another node", rate, c.producers(2))
	holdsRate(t, "at two nodes", rate, c.producers(2, 3))
}
