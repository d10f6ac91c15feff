package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// crowd is a consumer group under test: the owners of partitions, and the processed records.
type crowd struct {
	t       *testing.T
	server  *Server
	options []kgo.Opt

	mu        sync.Mutex
	owners    map[int32]string
	processed map[string]int // by value
	moved     chan struct{}  // gets a signal at every change
}

// crowdMember is one client of a crowd.
type crowdMember struct {
	crowd  *crowd
	name   string
	client *kgo.Client
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

// add adds a member.
func (c *crowd) add(name string) *crowdMember {
	c.t.Helper()
	m := &crowdMember{crowd: c, name: name, ended: make(chan struct{})}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.server.Addr()), kgo.ConsumerGroup("crowd"), kgo.ConsumeTopics("orders"), kgo.ClientID(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		// A killed member holds its partitions for a session. A member of a busy machine may not lose its
		// own: it would not know at once.
		kgo.SessionTimeout(15 * time.Second), kgo.HeartbeatInterval(100 * time.Millisecond), kgo.RebalanceTimeout(time.Minute),
		kgo.FetchMaxWait(50 * time.Millisecond), kgo.Dialer(m.dial),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) { m.assigned(assigned["orders"]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, revoked map[string][]int32) { m.revoked(revoked["orders"]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.revoked(lost["orders"]) }),
	}, c.options...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	m.client = client
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.consume(ctx)
	c.t.Cleanup(m.kill)
	return m
}

func (m *crowdMember) dial(ctx context.Context, network, host string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errors.New("killed")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

func (m *crowdMember) assigned(partitions []int32) {
	m.crowd.change(func() {
		for _, p := range partitions {
			if owner := m.crowd.owners[p]; owner != "" {
				m.crowd.t.Errorf("partition %d goes to %s, while %s has it", p, m.name, owner)
			}
			m.crowd.owners[p] = m.name
		}
	})
}

func (m *crowdMember) revoked(partitions []int32) {
	m.crowd.change(func() {
		for _, p := range partitions {
			if m.crowd.owners[p] == m.name {
				delete(m.crowd.owners, p)
			}
		}
	})
}

// change changes the state of the crowd, and signals it.
func (c *crowd) change(f func()) {
	c.mu.Lock()
	f()
	c.mu.Unlock()
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// consume processes records, and then commits them.
func (m *crowdMember) consume(ctx context.Context) {
	defer close(m.ended)
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := m.client.PollRecords(soon, 100)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		m.crowd.change(func() {
			fetches.EachRecord(func(r *kgo.Record) { m.crowd.processed[string(r.Value)]++ })
		})
		_ = m.client.CommitUncommittedOffsets(ctx) // refused in a rebalance: processed again
		m.client.AllowRebalance()
	}
}

// leave lets a member leave the group normally.
func (m *crowdMember) leave() {
	m.cancel()
	<-m.ended
	m.client.CloseAllowingRebalance()
}

// kill cuts a member off before it can leave the group.
func (m *crowdMember) kill() {
	m.mu.Lock()
	m.dead = true
	for _, conn := range m.conns {
		_ = conn.Close()
	}
	m.mu.Unlock()
	m.cancel()
	<-m.ended
	m.client.CloseAllowingRebalance()
	m.crowd.change(func() {
		for p, owner := range m.crowd.owners {
			if owner == m.name {
				delete(m.crowd.owners, p)
			}
		}
	})
}

// await waits until the members own all partitions, each one owner, and the group has no other
// members.
func (c *crowd) await(partitions int, members ...*crowdMember) {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		if c.spread(partitions, members) {
			return
		}
		select {
		case <-c.moved:
		case <-time.After(50 * time.Millisecond): // the group's state changes without a signal
		case <-timeout:
			d, err := c.server.broker.Groups().Describe("crowd")
			c.t.Fatalf("rebalances do not end: %d owners, %v with %d members, %v", len(c.owners), d.State, len(d.Members), err)
		}
	}
}

func (c *crowd) spread(partitions int, members []*crowdMember) bool {
	d, err := c.server.broker.Groups().Describe("crowd")
	if err != nil || d.State != group.Stable || len(d.Members) != len(members) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	has := map[string]int{}
	for _, owner := range c.owners {
		has[owner]++
	}
	for _, m := range members {
		if has[m.name] != partitions/len(members) && has[m.name] != (partitions+len(members)-1)/len(members) {
			return false
		}
	}
	return len(c.owners) == partitions
}

// Eight consumers share 24 partitions; some are killed, some leave, some join. Every record is
// processed, no partition has two owners at a time, rebalances end, and at the end everything is
// committed.
func TestConsumersComeAndGo(t *testing.T) {
	t.Parallel()
	kinds := map[string]kgo.Opt{
		"cooperative": kgo.Balancers(kgo.CooperativeStickyBalancer()), "eager": kgo.Balancers(kgo.RoundRobinBalancer()),
		"by the server": kgo.ServerSideBalancer(),
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions, records = 24, 100
			s, b := serve(t, topic.Config{Groups: topic.GroupsConfig{
				MinSession: time.Second, ConsumerSession: 15 * time.Second, ConsumerHeartbeat: 100 * time.Millisecond,
			}})
			create(t, b, "orders", partitions)
			c := &crowd{
				t: t, server: s, options: []kgo.Opt{kind},
				owners: map[int32]string{}, processed: map[string]int{}, moved: make(chan struct{}, 1),
			}
			var members []*crowdMember
			for i := range 8 {
				members = append(members, c.add(fmt.Sprint("m", i)))
			}
			produced := produceSome(t, s, partitions, 0, records)
			c.await(partitions, members...)
			members[0].kill()
			members[1].leave()
			produced += produceSome(t, s, partitions, records, records)
			c.await(partitions, members[2:]...)
			members = append(members[2:], c.add("m8"), c.add("m9"))
			produced += produceSome(t, s, partitions, 2*records, records)
			c.await(partitions, members...)
			c.allProcessed(produced)
			c.allCommitted(partitions, 3*records)
			for _, m := range members {
				m.leave()
			}
			c.allCommitted(partitions, 3*records) // no offset was set back
		})
	}
}

// produceSome appends records to each partition and returns how many.
func produceSome(t *testing.T, s *Server, partitions, from, count int) int {
	t.Helper()
	producer := client(t, s, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := from; i < from+count; i++ {
		for p := range partitions {
			producer.Produce(t.Context(), &kgo.Record{Topic: "orders", Partition: int32(p), Value: fmt.Appendf(nil, "%d/%d", p, i)},
				func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
		}
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return partitions * count
}

// allProcessed waits until every record was processed.
func (c *crowd) allProcessed(want int) {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		got := len(c.processed)
		c.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-c.moved:
		case <-timeout:
			c.t.Fatalf("%d records were processed, want %d", got, want)
		}
	}
}

// allCommitted waits until the group has read all partitions to the end.
func (c *crowd) allCommitted(partitions int, want int64) {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		offsets, err := c.server.broker.Groups().Offsets("crowd")
		if err != nil {
			c.t.Fatal(err)
		}
		behind := 0
		for p := range int32(partitions) {
			if offsets["orders"][p].Offset != want {
				behind++
			}
		}
		if behind == 0 {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-timeout:
			c.t.Fatalf("%d partitions are not committed up to %d: %v", behind, want, offsets["orders"])
		}
	}
}
