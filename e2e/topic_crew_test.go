package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// crewTopic is the topic that a crew reads, crewGroup its group.
const crewTopic, crewGroup = "orders", "crew"

// crewSession is the shortest session of a member.
const crewSession = 3 * time.Second

// crew is a consumer group under test, with a producer.
type crew struct {
	t          *testing.T
	server     *server
	admin      *kadm.Client
	partitions int
	byServer   bool // it uses the consumer protocol
	options    []kgo.Opt
	committed  *committedOffsets
	endWatch   func()

	producer      *kgo.Client
	stopProducing func()
	sent          map[int32]int64 // after stopProducing

	// members are the members that the group is expected to have.
	members []*crewMember
	names   int
	closing sync.WaitGroup

	mu sync.Mutex
	// claims has the members that believe they own a partition.
	claims map[int32]map[*crewMember]bool
	// late are members that still believed they own a partition when another got it: the group must
	// have dropped them, and they must learn of it.
	late      map[*crewMember]map[int32]lateness // by partition
	dropped   int
	processed map[int32]map[int64]bool // offsets, by partition
	again     int                      // records that a member got though they had been processed, and that was committed
}

func newCrew(s *server, partitions int, options ...kgo.Opt) *crew {
	s.t.Helper()
	s.newTopic(crewTopic, partitions)
	c := &crew{
		t: s.t, server: s, admin: kadm.NewClient(s.connect()), partitions: partitions, options: options,
		committed: newCommittedOffsets(s, crewGroup, crewTopic),
		sent:      map[int32]int64{}, claims: map[int32]map[*crewMember]bool{},
		late: map[*crewMember]map[int32]lateness{}, processed: map[int32]map[int64]bool{},
	}
	for partition := range int32(partitions) {
		c.claims[partition], c.processed[partition] = map[*crewMember]bool{}, map[int64]bool{}
	}
	c.producer = s.connect(kgo.ProducerLinger(5 * time.Millisecond))
	c.stopProducing = inBackground(c.produce)
	c.endWatch = inBackground(c.committed.watch)
	s.t.Cleanup(func() {
		c.stopProducing()
		c.endWatch()
		for _, m := range c.members {
			m.kill()
		}
		c.closing.Wait()
	})
	return c
}

// inBackground calls f; the returned function ends its context and waits for it.
func inBackground(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// produce sends records to all partitions until ctx ends.
func (c *crew) produce(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for partition := range int32(c.partitions) {
			c.sent[partition]++
			record := &kgo.Record{Topic: crewTopic, Partition: partition, Value: fmt.Append(nil, c.sent[partition])}
			c.producer.Produce(context.Background(), record, func(r *kgo.Record, err error) {
				if err != nil && !errors.Is(err, kgo.ErrClientClosed) {
					c.t.Errorf("produce to partition %d: %v", r.Partition, err)
				}
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *crew) processedOf(partition int32) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.processed[partition]))
}

// lateness is which member got a partition from another that had not given it back, and when.
type lateness struct {
	what string
	at   time.Time
}

// crewMember is one client of a crew.
type crewMember struct {
	crew     *crew
	name     string
	instance string
	client   *kgo.Client
	wire     wire
	end      func()

	// answered is when the member sent the last request that the coordinator answered, in
	// nanoseconds since the epoch: its session lasts at least from then on.
	answered atomic.Int64

	mu sync.Mutex // locked while it processes, and while it is held

	// held means that it is stopped, away that it was stopped: its beliefs do not count until the
	// group has answered it again. Guarded by crew.mu.
	held, away bool
	over       bool
	// leaving ends consume when what it has processed is committed; left is closed then.
	leaving atomic.Bool
	left    chan struct{}
}

// add adds a member.
func (c *crew) add() { c.addStatic("") }

// addStatic adds a member with an instance id.
func (c *crew) addStatic(instance string) {
	c.t.Helper()
	c.names++
	m := &crewMember{crew: c, name: fmt.Sprint("member ", c.names), instance: instance, left: make(chan struct{})}
	options := append([]kgo.Opt{
		kgo.ConsumerGroup(crewGroup), kgo.ConsumeTopics(crewTopic), kgo.ClientID(m.name), kgo.Dialer(m.wire.dial),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.RebalanceTimeout(time.Minute), // a busy member keeps its session, and is not dropped
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { m.assigned(got[crewTopic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.revoked(gone[crewTopic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.lost(gone[crewTopic]) }),
	}, c.options...)
	options = append(options, kgo.WithHooks(m))
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	ready := make(chan struct{})
	m.end = inBackground(func(ctx context.Context) {
		<-ready
		m.consume(ctx)
	})
	c.mu.Lock() // callbacks wait until the member is complete
	c.late[m] = map[int32]lateness{}
	m.client = c.server.connect(options...)
	c.mu.Unlock()
	close(ready)
	c.members = append(c.members, m)
}

// consume processes records and then commits them.
func (m *crewMember) consume(ctx context.Context) {
	defer close(m.left)
	for ctx.Err() == nil && !m.leaving.Load() {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := m.client.PollRecords(soon, 200)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		m.process(fetches)
		if fetches.NumRecords() > 0 {
			// If the commit is refused, the next owner processes the records again. It has no deadline of its
			// own: a commit that is given up goes on to the server on another connection than the next one, and
			// may arrive after it.
			m.client.CommitOffsetsSync(ctx, m.client.UncommittedOffsets(), m.crew.committed.answered)
		}
		m.client.AllowRebalance()
	}
}

// process records the received records, once the member is not held.
func (m *crewMember) process(fetches kgo.Fetches) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crew.mu.Lock()
	defer m.crew.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) {
		if r.Offset < m.crew.committed.floor(crewTopic, r.Partition) {
			m.crew.again++
		}
		m.crew.processed[r.Partition][r.Offset] = true
	})
}

// OnBrokerE2E implements kgo.HookBrokerE2E: a request was answered or failed.
func (m *crewMember) OnBrokerE2E(_ kgo.BrokerMetadata, request int16, e kgo.BrokerE2E) {
	if key := kmsg.Key(request); e.Err() == nil && slices.Contains([]kmsg.Key{kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.ConsumerGroupHeartbeat}, key) {
		m.answered.Store(time.Now().Add(-e.DurationE2E()).UnixNano())
	}
}

// assigned records the partitions that a member owns from now on. No other member may own them in
// the same generation, and in older ones only members whose sessions have ended. That may be this one: its answer came so late
// that the group has gone on without it.
func (m *crewMember) assigned(partitions []int32) {
	c := m.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	goesOn := func(m *crewMember) bool { return time.Since(time.Unix(0, m.answered.Load())) < crewSession/2 }
	_, generation := m.client.GroupMetadata()
	for _, partition := range partitions {
		for other := range c.claims[partition] {
			if other == m {
				continue
			}
			what := fmt.Sprintf("%s got partition %d in generation %d", m.name, partition, generation)
			switch _, its := other.client.GroupMetadata(); {
			case other.away:
			case its == generation, its > generation && goesOn(m):
				c.t.Errorf("%s, and %s owns it in generation %d", what, other.name, its)
			case its > generation:
				c.late[m][partition] = lateness{what, time.Now()}
			case goesOn(other):
				c.t.Errorf("%s, and %s owns it, whose session goes on", what, other.name)
			default:
				c.late[other][partition] = lateness{what, time.Now()}
			}
		}
		c.claims[partition][m] = true
	}
	m.heard()
}

// heard records that the group has answered a member.
func (m *crewMember) heard() {
	if !m.held {
		m.away = false
	}
}

// revoked records the partitions that a member gives back, which it still owned. One that was dropped may
// not know it yet: no request of it was answered since another got the partition.
func (m *crewMember) revoked(partitions []int32) {
	c := m.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, partition := range partitions {
		if late, is := c.late[m][partition]; is && !m.away && time.Unix(0, m.answered.Load()).After(late.at) {
			c.t.Errorf("%s before %s gave it back", late.what, m.name)
		}
		delete(c.late[m], partition)
		delete(c.claims[partition], m)
	}
	m.heard()
}

// lost records the partitions that a member lost because it was dropped.
func (m *crewMember) lost(partitions []int32) {
	c := m.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, partition := range partitions {
		if _, is := c.late[m][partition]; is && !m.away {
			c.dropped++
		}
		delete(c.late[m], partition)
		delete(c.claims[partition], m)
	}
	m.heard()
}

// hold stops a member as if its process were stopped, until the returned function is called: it
// does nothing and sends nothing.
func (m *crewMember) hold() (release func()) {
	m.setHeld(true)
	m.mu.Lock()
	pass := m.wire.hold()
	return func() {
		m.setHeld(false)
		pass()
		m.mu.Unlock()
	}
}

func (m *crewMember) setHeld(held bool) {
	m.crew.mu.Lock()
	defer m.crew.mu.Unlock()
	m.held, m.away = held, true
}

// kill cuts a member off before it can leave the group.
func (m *crewMember) kill() {
	if m.over {
		return
	}
	m.over = true
	m.setHeld(true)
	m.wire.kill()
	m.end()
	m.forget()
	m.crew.closing.Go(m.client.CloseAllowingRebalance)
}

// stop lets a member leave the group normally.
func (m *crewMember) stop() {
	m.over = true
	m.leaving.Store(true)
	<-m.left
	m.end()
	m.client.CloseAllowingRebalance()
	m.forget()
}

// forget removes the beliefs of a member that is gone.
func (m *crewMember) forget() {
	c := m.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	for partition, late := range c.late[m] {
		if !m.away {
			c.t.Errorf("%s, and %s owned it to its end", late.what, m.name)
		}
		delete(c.late[m], partition)
	}
	for partition := range c.claims {
		delete(c.claims[partition], m)
	}
}
