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

// Of what a node looks at by itself.
const (
	// lookEvery is how often it looks who leads and which connections there are.
	lookEvery = 100 * time.Millisecond
	// growEvery is how often it looks whether the metadata can have more replicas.
	growEvery = 2 * time.Second
	// recheck is how many looks after a connection was lost it still is made sure
	// that nobody without one counts as alive: a last heartbeat may be under way.
	recheck = 5
	// askedFor is how long a log that nobody asks about is looked after.
	askedFor = time.Hour
)

// ErrEngineStopped says that the engine has given up writing, as it does when the disk is
// full or a write has failed. It works again when the store is opened again.
var ErrEngineStopped = errors.New("the engine has given up, as after a write that failed: make room on the disk and start again")

// ErrAlive says that a node that should be removed is alive.
var ErrAlive = errors.New("the node is alive: stop it first")

// cluster is a topic.Cluster: what one node knows of all.
type cluster struct {
	store   *Store
	options ClusterOptions
	peers   *peers
	work    *lifecycle.Group
	wake    chan struct{} // one is in it if there is a reason to look at once
	signals signals
	beating sync.Mutex // held while a heartbeat is sent: the last one has what holds

	mu       sync.Mutex
	leaving  bool
	followed uint64            // how far the broker follows the metadata
	asked    map[string]*asked // the streams that somebody asked about
}

// asked is a stream that somebody asked about.
type asked struct {
	leads bool
	at    time.Time
}

var _ topic.Cluster = (*cluster)(nil)

func newCluster(s *Store, options ClusterOptions) *cluster {
	return &cluster{
		store: s, options: options, peers: newPeers(options.Node), work: lifecycle.NewGroup(context.Background()),
		wake: make(chan struct{}, 1), asked: map[string]*asked{},
	}
}

// start begins to beat and to look.
func (c *cluster) start() error {
	conn := c.store.conn
	err := subscribe(conn, beatSubject, func(message *nats.Msg) {
		if c.peers.take(message.Data, time.Now()) {
			c.met()
		}
	})
	if err != nil {
		return err
	}
	err = subscribe(conn, server.JSAdvisoryStreamLeaderElectedPre+".*", func(*nats.Msg) { c.look() })
	if err != nil {
		return err
	}
	c.work.Go("heartbeats", c.beats)
	c.work.Go("leaders", c.looks)
	return nil
}

// stop lets others know that the node goes, and ends what start began.
func (c *cluster) stop() error {
	c.leave()
	return c.work.Stop(context.Background())
}

// met tells that other nodes are alive than before.
func (c *cluster) met() {
	c.store.options.Logger.Info("other nodes are alive", "alive", c.peers.now())
	c.signals.fire()
}

// look makes the node look at once.
func (c *cluster) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// beats says that the node is there.
func (c *cluster) beats(ctx context.Context) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		c.beat()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *cluster) beat() {
	c.beating.Lock()
	defer c.beating.Unlock()
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

// leave lets others know that the node goes.
func (c *cluster) leave() {
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	c.beat()
	// The engine takes it before it stops.
	_ = c.store.conn.FlushTimeout(time.Second)
}

// looks finds out who leads and who is alive, as long as the engine works.
func (c *cluster) looks(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	remotes, checks := 0, 0
	for {
		if !c.store.engine.JetStreamEnabled() {
			return ErrEngineStopped
		}
		now := time.Now()
		changed, met := c.lead(now), false
		n := c.store.engine.NumRemotes()
		if n < remotes {
			checks = recheck
		}
		remotes = n
		if checks > 0 {
			checks--
			met = c.peers.only(c.store.engine.connected(), now)
		}
		if c.peers.tick(now) || met {
			c.met()
		} else if changed {
			c.signals.fire()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.wake:
		}
	}
}

// lead looks which of the logs that somebody asked about this node leads, and
// tells whether these are others than before.
func (c *cluster) lead(now time.Time) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stream, a := range c.asked {
		leads := c.store.engine.leads(stream)
		changed = changed || leads != a.leads
		a.leads = leads
		if !leads && now.Sub(a.at) > askedFor {
			delete(c.asked, stream)
		}
	}
	return changed
}

// Node returns the number of this node.
func (c *cluster) Node() int32 { return c.options.Node }

// Alive returns the nodes that have been heard of within 3 s and to which there is
// a connection, and this one, in order.
func (c *cluster) Alive() []int32 { return c.peers.now() }

// Leads tells whether this node leads a log: a look at what the engine in this
// process knows.
func (c *cluster) Leads(log string) bool { return c.leads(logStream + log) }

func (c *cluster) leads(stream string) bool {
	leads := c.store.engine.leads(stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.asked[stream]
	if a == nil {
		a = &asked{leads: leads}
		c.asked[stream] = a
	}
	// What was not told yet to those who watch stays to be told by the next look.
	a.at = time.Now()
	return leads
}

// Watch calls signal when what Alive or Leads returns may have changed: at most
// some 100 ms later.
func (c *cluster) Watch(signal func()) (cancel func()) { return c.signals.add(signal) }

// Followed notes how far this node follows the metadata, and tells the others.
func (c *cluster) Followed(revision uint64) {
	c.mu.Lock()
	c.followed = revision
	c.mu.Unlock()
	c.beat()
}

// AwaitFollowed waits until the others have told that they follow the metadata up to
// a revision: those that are alive.
func (c *cluster) AwaitFollowed(ctx context.Context, revision uint64) error {
	return c.until(ctx, func() bool { return c.peers.followed(revision) })
}

// grow gives the metadata more replicas, when there are nodes for them.
func (c *cluster) grow(ctx context.Context) error {
	tick := time.NewTicker(growEvery)
	defer tick.Stop()
	for {
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
	replicas := c.metaReplicas(len(c.peers.now()))
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

// metaReplicas returns on how many of some nodes the metadata can be kept: an odd
// number, because one more keeps nothing safer.
func (c *cluster) metaReplicas(nodes int) int {
	replicas := min(c.options.MetaReplicas, nodes)
	return replicas - (replicas+1)%2
}

// ask sends a request to the engine, and reads the answer.
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

// until waits for something that a look tells.
func (c *cluster) until(ctx context.Context, done func() bool) error {
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

// names returns the streams that there are, and those that somebody asked about.
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
	for stream := range c.asked {
		names = append(names, stream)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
