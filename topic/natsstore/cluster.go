package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

const (
	// leaderPoll is how often a node checks leaders and connections.
	leaderPoll = 100 * time.Millisecond
	// growEvery is how often it checks whether the metadata can have more replicas.
	growEvery = 2 * time.Second
	// recheck is for how many checks after a lost connection a node counts nodes
	// without a connection as dead: a last heartbeat may be in flight.
	recheck = 5
	// watchFor is how long a node watches a log after the last question about it.
	watchFor = time.Hour
)

// ErrEngineStopped says that the engine no longer writes, because the disk is full or a
// write has failed. Opening the store again starts it.
var ErrEngineStopped = errors.New("the engine has stopped, as after a failed write: free some space on the disk and start again")

// ErrAlive says that a node to remove is alive.
var ErrAlive = errors.New("the node is alive: stop it first")

// cluster is a topic.Cluster, as one node sees it.
type cluster struct {
	store   *Store
	options ClusterOptions
	peers   *peers
	work    *lifecycle.Group
	wake    chan struct{} // holds one element if a check is due at once
	watches topic.Watches
	tales   tales
	sending sync.Mutex // held while a heartbeat is sent: the last one is current

	mu       sync.Mutex
	leaving  bool
	followed uint64                    // how far the broker follows the metadata
	watched  map[string]*watchedStream // by stream
}

// watchedStream is a stream whose leader this node was asked about.
type watchedStream struct {
	leads bool
	at    time.Time
}

var _ topic.Cluster = (*cluster)(nil)

func newCluster(s *Store, options ClusterOptions) *cluster {
	return &cluster{
		store: s, options: options, peers: newPeers(options.Node), work: lifecycle.NewGroup(context.Background()),
		wake: make(chan struct{}, 1), watched: map[string]*watchedStream{},
	}
}

// start starts heartbeats and checks.
func (c *cluster) start() error {
	conn := c.store.conn
	err := subscribe(conn, beatSubject, func(message *nats.Msg) {
		if c.peers.take(message.Data, time.Now()) {
			c.aliveChanged()
		}
	})
	if err != nil {
		return err
	}
	if err = subscribe(conn, tellSubject+".*", c.hear); err != nil {
		return err
	}
	err = subscribe(conn, server.JSAdvisoryStreamLeaderElectedPre+".*", func(*nats.Msg) { c.wakeUp() })
	if err != nil {
		return err
	}
	c.work.Go("heartbeats", c.sendHeartbeats)
	c.work.Go("leaders", c.watchLeaders)
	return nil
}

// stop announces that the node leaves, and ends what start started.
func (c *cluster) stop() error {
	c.leave()
	return c.work.Stop(context.Background())
}

// aliveChanged signals that the set of alive nodes has changed.
func (c *cluster) aliveChanged() {
	c.store.options.Logger.Info("other nodes are alive", "alive", c.peers.now())
	c.watches.Notify("")
}

// wakeUp makes the next check happen at once.
func (c *cluster) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// sendHeartbeats sends heartbeats until ctx ends.
func (c *cluster) sendHeartbeats(ctx context.Context) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		c.sendHeartbeat()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *cluster) sendHeartbeat() {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	says := beat{Node: c.options.Node, Leaving: c.leaving, Followed: c.followed}
	c.mu.Unlock()
	data, err := json.Marshal(says)
	if err == nil {
		err = c.store.conn.Publish(beatSubject, data)
	}
	if err != nil {
		c.store.options.Logger.Debug("topic store: no heartbeat", "error", err)
	}
}

// leave announces that the node leaves.
func (c *cluster) leave() {
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	c.sendHeartbeat()
	// The engine has it before it stops.
	_ = c.store.conn.FlushTimeout(time.Second)
}

// watchLeaders checks leaders and alive nodes until ctx ends or the engine stops.
func (c *cluster) watchLeaders(ctx context.Context) error {
	tick := time.NewTicker(leaderPoll)
	defer tick.Stop()
	remotes, checks := 0, 0
	for {
		if !c.store.engine.JetStreamEnabled() {
			return ErrEngineStopped
		}
		now := time.Now()
		changed, met := c.updateLeads(now), false
		n := c.store.engine.NumRemotes()
		if n < remotes {
			checks = recheck
		}
		remotes = n
		if checks > 0 {
			checks--
			met = c.lookAtConnections(now)
		}
		if c.peers.tick(now) || met {
			c.aliveChanged()
		} else if changed {
			c.watches.Notify("")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.wake:
		}
	}
}

// lookAtConnections counts nodes without a connection as dead, and reports whether any is newly
// so. The elections in their groups begin at once, and not when their silence has been noticed.
func (c *cluster) lookAtConnections(now time.Time) (changed bool) {
	before, connected := c.peers.now(), c.store.engine.connected()
	changed = c.peers.keepOnly(connected, now)
	for _, node := range before {
		if node != c.options.Node && !slices.Contains(connected, node) {
			groups := c.store.engine.campaign(node, connected)
			c.store.options.Logger.Info("a node is lost: elections begin here", "node", node, "groups", len(groups))
		}
	}
	return changed
}

// updateLeads checks which watched streams this node leads, and reports whether they have
// changed.
func (c *cluster) updateLeads(now time.Time) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stream, a := range c.watched {
		leads := c.store.engine.leads(stream)
		changed = changed || leads != a.leads
		a.leads = leads
		if !leads && now.Sub(a.at) > watchFor {
			delete(c.watched, stream)
		}
	}
	return changed
}

// Node returns the number of this node.
func (c *cluster) Node() int32 { return c.options.Node }

// Alone returns false.
func (c *cluster) Alone() bool { return false }

// Alive returns, in order, this node and the nodes with a connection and a heartbeat
// within 3 s.
func (c *cluster) Alive() []int32 { return c.peers.now() }

// Leads reports whether this node leads a log, by the state of the engine in this
// process.
func (c *cluster) Leads(log string) bool { return c.leads(logStream + log) }

func (c *cluster) leads(stream string) bool {
	leads := c.store.engine.leads(stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.watched[stream]
	if a == nil {
		a = &watchedStream{leads: leads}
		c.watched[stream] = a
	}
	// The next check still signals a change since the last one.
	a.at = time.Now()
	return leads
}

// Watch calls signal when the result of Alive or Leads may have changed, at most some
// 100 ms later.
func (c *cluster) Watch(signal func()) (cancel func()) { return c.watches.Add("", signal) }

// Followed announces the revision up to which this node follows the metadata.
func (c *cluster) Followed(revision uint64) {
	c.mu.Lock()
	c.followed = revision
	c.mu.Unlock()
	c.sendHeartbeat()
}

// AwaitFollowed waits until all other nodes that are alive follow the metadata up to a
// revision.
func (c *cluster) AwaitFollowed(ctx context.Context, revision uint64) error {
	return c.poll(ctx, func() bool { return c.peers.followed(revision) })
}

// grow adds replicas of the metadata when there are nodes for them, and warns of many streams.
func (c *cluster) grow(ctx context.Context) error {
	tick := time.NewTicker(growEvery)
	defer tick.Stop()
	for warned := 0; ; {
		warned = c.store.warnOfStreams(warned)
		if c.store.engine.leads(metaStream) {
			if err := c.growOnce(ctx); err != nil && ctx.Err() == nil {
				c.store.options.Logger.Warn("topic store: the metadata is not kept on more nodes yet", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *cluster) growOnce(ctx context.Context) error {
	replicas := metaReplicas(len(c.peers.now()))
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	stream, err := c.store.js.Stream(ctx, metaStream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if info.Config.Replicas >= replicas || moving(info) {
		return nil
	}
	config := info.Config
	config.Replicas = replicas
	_, err = c.store.js.UpdateStream(ctx, config)
	return err
}

// metaReplicas returns how many replicas the metadata has with that many nodes: the engine's
// most, so that it outlives as many nodes as any topic does, and an odd number, because one
// more would not outlive more.
func metaReplicas(nodes int) int {
	replicas := min(nodes, maxReplicas)
	return replicas - (replicas+1)%2
}

// ask sends a request to the engine and decodes the answer.
func ask(ctx context.Context, conn *nats.Conn, subject string, request, answer any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	message, err := conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return err
	}
	return json.Unmarshal(message.Data, answer)
}

// poll waits until done returns true.
func (c *cluster) poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// names returns all streams that the engine lists, and those that this node watches.
func (c *cluster) names(ctx context.Context) []string {
	names := []string{metaStream}
	list := c.store.js.StreamNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		c.store.options.Logger.Warn("topic store: not all logs are known", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for stream := range c.watched {
		names = append(names, stream)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
