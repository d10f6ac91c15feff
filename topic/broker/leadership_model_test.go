package broker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// Random faults of a cluster of three, while idempotent producers send and consumers
// read: rapid draws a list of faults, which is executed in a bubble.

type fault struct {
	kind string
	node int32
	wait time.Duration // after the fault
	bits uint64
}

func (f fault) String() string { return fmt.Sprintf("%s %d, %v", f.kind, f.node, f.wait) }

var faultKinds = []string{"elect", "elect", "kill", "cut", "heal", "restart", "hold", "delay", "release", "lag", "unlag", "leave", "fail", "unfail", "wait"}

func drawFaults(t *rapid.T) []fault {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
		return fault{
			kind: rapid.SampledFrom(faultKinds).Draw(t, "kind"),
			node: rapid.Int32Range(1, 3).Draw(t, "node"),
			wait: time.Duration(rapid.IntRange(0, 400).Draw(t, "wait")) * time.Millisecond,
			bits: rapid.Uint64().Draw(t, "bits"),
		}
	}), 0, 40).Draw(t, "faults")
}

// chaos is the cluster, and the results that its clients have seen.
type chaos struct {
	nodes            *storetest.Nodes
	delays, compacts bool

	mu      sync.Mutex
	brokers map[int32]*broker.Broker
	seen    map[int64]string // by offset, the values that any consumer has read
	acked   map[string]int64 // by value, its offset; -1 if it is delayed
	due     map[string]time.Time
	wrong   []string
	over    bool
	// consumed is what the consumers of a compacted topic have at the end.
	consumed []consumed
}

func (c *chaos) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *chaos) begin(id int32) {
	config := topic.Config{TailBytes: smallEntries, RetentionInterval: time.Hour}
	if c.compacts {
		config.RetentionInterval = 100 * time.Millisecond
	}
	b, err := broker.New(c.nodes.Store(id), config)
	if err == nil {
		err = b.Start(context.Background())
	}
	if err != nil { // for example without a majority
		_ = c.nodes.Store(id).Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[id] = b
}

func (c *chaos) broker(id int32) *broker.Broker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokers[id]
}

// stop stops the broker of a node, which may be dead.
func (c *chaos) stop(id int32) {
	c.mu.Lock()
	b := c.brokers[id]
	delete(c.brokers, id)
	c.mu.Unlock()
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Stop(ctx); err != nil && !errors.Is(err, topic.ErrClosed) {
		c.fail("stop of node %d: %v", id, err)
	}
}

// log returns the name of the partition's log.
func (c *chaos) log() string {
	for _, name := range c.nodes.Logs() {
		if strings.HasPrefix(name, "records-") {
			return name
		}
	}
	return ""
}

// do executes a fault.
func (c *chaos) do(f fault) {
	store := c.nodes.Store(f.node)
	switch f.kind {
	case "elect":
		for _, name := range c.nodes.Logs() {
			c.nodes.Elect(name, f.node)
		}
	case "kill":
		c.nodes.Kill(f.node)
		c.stop(f.node)
	case "restart":
		if c.broker(f.node) == nil {
			c.nodes.Restart(f.node)
			c.begin(f.node)
		}
	case "leave":
		c.stop(f.node)
		_ = store.Close()
	case "cut":
		c.nodes.Cut(f.node)
	case "heal":
		c.nodes.Heal(f.node)
	case "hold":
		store.Hold()
	case "delay":
		store.Delay()
	case "release":
		bits := f.bits
		store.ReleaseSome(func(topic.Entry) bool {
			bits = bits>>1 | bits<<63
			return bits&1 == 0
		})
	case "lag", "unlag":
		store.Lag(f.kind == "lag")
	case "fail":
		store.FailAppends(topic.ErrUncertain, f.bits&1 == 0)
	case "unfail":
		store.FailAppends(nil, false)
	}
	time.Sleep(f.wait)
}

// mend undoes all faults.
func (c *chaos) mend() {
	for id := int32(1); id <= 3; id++ {
		c.nodes.Heal(id)
		store := c.nodes.Store(id)
		store.Release()
		store.Lag(false)
		store.FailAppends(nil, false)
	}
	for id := int32(1); id <= 3; id++ {
		c.do(fault{kind: "restart", node: id})
	}
	c.nodes.ElectAll()
}

// partition returns a node's partition, if the node reports that it leads.
func (c *chaos) partition(id int32) (*broker.Topic, *broker.Partition) {
	b := c.broker(id)
	if b == nil {
		return nil, nil
	}
	orders, err := b.Topic("orders")
	if err != nil {
		return nil, nil
	}
	p, err := orders.Partition(0)
	if err != nil {
		return nil, nil
	}
	return orders, p
}

// chaosProducer is an idempotent producer: it sends unacknowledged batches again, in
// order, to any node that accepts them.
type chaosProducer struct {
	chaos  *chaos
	id     int64
	random *rand.Rand
	next   int32
}

// batch returns the batch of a sequence number, and the time of its delay.
func (p *chaosProducer) batch(sequence int32) (value string, delay time.Duration, batch topic.Batch) {
	value = fmt.Sprintf("%d/%d", p.id, sequence)
	record := topic.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}
	if p.chaos.compacts {
		record.Key = fmt.Appendf(nil, "%d/%d", p.id, sequence%7)
	}
	if p.chaos.delays && sequence%3 == 1 {
		delay = time.Duration(100*(1+sequence%20)) * time.Millisecond
		record.Headers = []topic.Header{{Key: topic.HeaderDelay, Value: []byte(delay.String())}}
	}
	batch, err := topic.NewBatch([]topic.Record{record}, topic.BatchOptions{Producer: &topic.BatchProducer{ID: p.id, Sequence: sequence}})
	if err != nil {
		p.chaos.fail("batch: %v", err)
	}
	return value, delay, batch
}

func (p *chaosProducer) run() {
	for {
		p.chaos.mu.Lock()
		over := p.chaos.over
		p.chaos.mu.Unlock()
		if over {
			return
		}
		p.send(p.next + int32(p.random.IntN(4)) + 1)
		time.Sleep(time.Duration(p.random.IntN(80)) * time.Millisecond)
	}
}

// send sends the batches before a sequence number until all are acknowledged.
func (p *chaosProducer) send(before int32) {
	for attempt := 0; p.next < before; attempt++ {
		if attempt > 2000 {
			p.chaos.fail("producer %d gets no further than %d", p.id, p.next)
			return
		}
		orders, _ := p.chaos.partition(int32(p.random.IntN(3)) + 1)
		if orders == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.attempt(orders, before)
	}
}

// attempt sends batches in parallel to one node, and waits for the answers.
func (p *chaosProducer) attempt(orders *broker.Topic, before int32) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var under []*broker.Appending
	for sequence := p.next; sequence < before; sequence++ {
		value, delay, batch := p.batch(sequence)
		p.chaos.sent(value, delay)
		appending, err := orders.Append(ctx, 0, []topic.Batch{batch})
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			break
		}
		under = append(under, appending)
	}
	for _, appending := range under {
		base, _, err := appending.Wait(ctx)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			return
		}
		value, delay, _ := p.batch(p.next)
		p.chaos.mu.Lock()
		if delay > 0 {
			base = -1
		}
		p.chaos.acked[value] = base
		p.chaos.mu.Unlock()
		p.next++
	}
}

// sent records the due time of a value when it is first sent.
func (c *chaos) sent(value string, delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.due[value]; !again && delay > 0 {
		c.due[value] = time.Now().Add(delay)
	}
}

// run executes the faults, and returns the violations that it found.
func (c *chaos) run(faults []fault, seed uint64) []string {
	for id := int32(1); id <= 3; id++ {
		c.begin(id)
	}
	spec := topic.Spec{Name: "orders", Partitions: 1}
	switch {
	case c.delays:
		spec.Settings = delays
	case c.compacts:
		spec.Settings = compacted("max.compaction.lag.ms", "1")
	}
	if _, err := c.broker(1).Create(context.Background(), spec, false); err != nil {
		return []string{err.Error()}
	}
	var clients sync.WaitGroup
	for i := range uint64(2) {
		p := &chaosProducer{chaos: c, id: int64(i), random: rand.New(rand.NewPCG(seed, i))}
		clients.Go(p.run)
		clients.Go(func() { c.consume(rand.New(rand.NewPCG(seed, 10+i))) })
	}
	for _, f := range faults {
		c.do(f)
	}
	c.mend()
	time.Sleep(12 * time.Second)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	clients.Wait()
	time.Sleep(time.Minute)
	if c.compacts {
		c.checkCompacted()
	} else {
		c.check()
	}
	for id := int32(1); id <= 3; id++ {
		c.stop(id)
	}
	if len(c.acked) == 0 {
		c.fail("nothing was acknowledged")
	}
	return c.wrong
}

func checkChaos(t *testing.T, delays, compacts bool) {
	defer rapidtest.Checks(20, 100)()
	rapid.Check(t, func(rt *rapid.T) {
		faults, seed := drawFaults(rt), rapid.Uint64().Draw(rt, "seed")
		var wrong []string
		synctest.Test(t, func(*testing.T) {
			c := &chaos{
				nodes: storetest.NewCluster(3), delays: delays, compacts: compacts, brokers: map[int32]*broker.Broker{},
				seen: map[int64]string{}, acked: map[string]int64{}, due: map[string]time.Time{},
			}
			c.nodes.ElectAfter(300 * time.Millisecond)
			wrong = c.run(faults, seed)
		})
		if len(wrong) > 0 {
			rt.Fatalf("%s", strings.Join(wrong[:min(len(wrong), 10)], "\n"))
		}
	})
}

func TestLeadersAgainstModel(t *testing.T)             { checkChaos(t, false, false) }
func TestDelaysOfLeadersAgainstModel(t *testing.T)     { checkChaos(t, true, false) }
func TestCompactionByLeadersAgainstModel(t *testing.T) { checkChaos(t, false, true) }
