package natsstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/topic"
)

const (
	// leadsEvery is how often a node checks whether it leads the metadata's stream, beside
	// the notices of elections.
	leadsEvery = 250 * time.Millisecond
	// announceEvery is how often an idle writer announces the log's end, so that followers
	// find the entries that they missed.
	announceEvery = time.Second
	// askEvery is how often a node asks for the writer while none is known.
	askEvery = 100 * time.Millisecond
	// resolveMin is the timeout of the first barrier that resolves an uncertain outcome;
	// that of later ones grows up to Options.Timeout.
	resolveMin = 500 * time.Millisecond
	// followTimeout bounds one attempt to read missed entries.
	followTimeout = 5 * time.Second
)

// bufferedBytes bounds the data of announced entries that are not applied yet; others are
// read from the log.
const bufferedBytes = 16 << 20

// metaNodes is what a node of a cluster knows of the writer of the metadata.
//
// A term is the time of one writer. It begins with an entry without changes, whose
// sequence is the term's number, and ends with the writer's first failed append. After a
// term has begun, no entry of an earlier term can be written.
type metaNodes struct {
	conn  *nats.Conn
	leads func() bool // whether this node's engine leads the stream
	// writerID is in the entries that this node writes: another node may write equal data.
	writerID int64

	// Used by the goroutine only.
	requests  *nats.Subscription // to changes, in this node's term
	announced time.Time

	// Guarded by meta.mu.
	writes bool   // this node has the newest term
	term   uint64 // the newest known term
	// reachable says that the writer of the term has announced something since a message
	// to it failed.
	reachable bool
	askedAt   time.Time
	// termCtx ends with the term.
	termCtx      context.Context
	endTermCtx   context.CancelFunc
	announcedEnd uint64 // the last entry that was announced
	buffered     []topic.Entry
	size         int // bytes of buffered
	// resolving says that a goroutine resolves uncertain outcomes.
	resolving bool
}

// joinNodes subscribes to the messages of other nodes.
func (m *meta) joinNodes() error {
	engine := m.store.engine
	conn, err := connect(engine, m.store.options.Logger)
	if err != nil {
		return err
	}
	n := &metaNodes{conn: conn, leads: func() bool { return engine.leads(metaStream) }, writerID: rand.Int64()}
	n.termCtx, n.endTermCtx = context.WithCancel(context.Background())
	m.nodes = n
	elected := server.JSAdvisoryStreamLeaderElectedPre + "." + metaStream
	err = errors.Join(
		subscribe(conn, entrySubject, m.onAnnouncement),
		subscribe(conn, askSubject, func(*nats.Msg) { m.announceEnd() }),
		subscribe(conn, elected, func(*nats.Msg) { m.wakeUp() }),
	)
	if err != nil {
		m.leaveNodes()
	}
	return err
}

// leaveNodes closes the connection to other nodes.
func (m *meta) leaveNodes() {
	if m.nodes == nil {
		return
	}
	m.mu.Lock()
	m.nodes.endTermCtx()
	m.mu.Unlock()
	m.nodes.conn.Close()
}

// runNodes writes the metadata or follows its writer. It is the goroutine of a node of a
// cluster.
func (m *meta) runNodes(ctx context.Context) error {
	defer m.endTerm()
	look := time.NewTicker(leadsEvery)
	defer look.Stop()
	var failed pauses
	for ctx.Err() == nil {
		busy, err := m.step(ctx)
		if err != nil {
			m.pause(ctx, &failed, err)
			continue
		}
		failed = pauses{}
		if busy {
			continue
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-look.C:
		}
	}
	return nil
}

// step does the next piece of work, and reports whether there may be more.
func (m *meta) step(ctx context.Context) (busy bool, err error) {
	n, leads := m.nodes, m.nodes.leads()
	m.mu.RLock()
	writes := n.writes
	m.mu.RUnlock()
	switch {
	case n.requests != nil && !(writes && leads):
		m.endTerm()
		return true, nil
	case n.requests != nil:
		if m.writePending(ctx) {
			return true, nil
		}
		if time.Since(n.announced) >= announceEvery {
			n.announced = time.Now()
			m.announceEnd()
		}
		m.resolveUncertain()
		return false, nil
	case leads:
		return true, m.claim(ctx)
	}
	return false, m.follow(ctx)
}

// claim starts a term of this node.
func (m *meta) claim(ctx context.Context) error {
	if err := m.catchUp(ctx); err != nil {
		return err
	}
	data := appendHead(nil, changesHead{From: m.state.from, Bytes: m.state.bytes})
	if err := m.append(data); err != nil {
		return fmt.Errorf("begin to write the metadata: %w", err)
	}
	n, term := m.nodes, m.state.last
	requests, err := n.conn.Subscribe(writeSubject+"."+strconv.FormatUint(term, 10), m.handleRequests(term))
	if err == nil {
		err = requests.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	newest := n.term
	if term > newest {
		n.startTerm(term)
		n.writes = true
		m.uncertain = false // no earlier entry can be written now
	}
	m.notify()
	m.mu.Unlock()
	n.requests = requests
	if term <= newest {
		m.endTerm()
		return fmt.Errorf("begin to write the metadata at entry %d: another node has at %d", term, newest)
	}
	m.announce(topic.Entry{Sequence: term, Data: data})
	m.trim()
	return nil
}

// startTerm records the start of a term. The caller holds meta.mu.
func (n *metaNodes) startTerm(term uint64) {
	n.endTermCtx()
	n.term, n.writes, n.reachable = term, false, false
	n.termCtx, n.endTermCtx = context.WithCancel(context.Background())
}

// endTerm ends the term of this node, if there is one.
func (m *meta) endTerm() {
	m.cleaning = nil
	n := m.nodes
	m.mu.Lock()
	n.writes, n.reachable = false, false
	m.notify()
	m.mu.Unlock()
	if n.requests != nil {
		// Requests that have arrived are rejected; without a connection there are none.
		_ = n.requests.Drain()
		n.requests = nil
	}
	m.rejectWaiting(errNotWriter)
}

// follow applies announced entries to the state.
func (m *meta) follow(ctx context.Context) error {
	n := m.nodes
	m.mu.Lock()
	buffered, announced := n.buffered, n.announcedEnd
	n.buffered, n.size = nil, 0
	m.mu.Unlock()
	for _, entry := range buffered {
		if entry.Sequence != m.state.last+1 {
			continue
		}
		if err := m.apply(entry); err != nil {
			return err
		}
	}
	if announced > m.state.last {
		within, cancel := context.WithTimeoutCause(ctx, followTimeout, errTimeout)
		defer cancel()
		if err := m.read(within, announced); err != nil {
			return err
		}
	}
	m.resolveUncertain()
	return nil
}

// resolveUncertain starts to resolve the outcomes of changes that this node sent and got no
// answer to. A barrier in the same term comes after them, and no other term can write them.
func (m *meta) resolveUncertain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes.resolving || !m.uncertain {
		return
	}
	m.nodes.resolving = true
	m.work.Go("resolve uncertain metadata", func(ctx context.Context) error {
		for limit := resolveMin; !m.tryResolve(ctx, limit); limit = min(2*limit, m.store.options.Timeout) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(askEvery):
			}
		}
		return nil
	})
}

// tryResolve tries to resolve all uncertain outcomes, and reports whether none is left. A
// barrier without an answer does no harm, so its timeout is shorter than a write's.
func (m *meta) tryResolve(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m.mu.RLock()
	uncertainties := m.uncertainties
	m.mu.RUnlock()
	_, err := m.submit(ctx, operation{barrier: true})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && uncertainties == m.uncertainties {
		m.uncertain = false
		m.notify()
	}
	if m.closed || !m.uncertain {
		m.nodes.resolving = false
	}
	return !m.nodes.resolving
}

// announce announces an entry that this node has written.
func (m *meta) announce(entry topic.Entry) {
	n := m.nodes
	if n == nil || n.requests == nil {
		return
	}
	n.announced = time.Now()
	m.mu.RLock()
	a := announcement{Term: n.term, Sequence: entry.Sequence, Data: entry.Data}
	writes := n.writes
	m.mu.RUnlock()
	if len(a.Data) > maxAnnounceBytes {
		a.Data = nil
	}
	if writes {
		n.publish(a)
	}
}

// announceEnd announces the end of the log, if this node writes.
func (m *meta) announceEnd() {
	n := m.nodes
	m.mu.RLock()
	a := announcement{Term: n.term, Sequence: m.state.last}
	writes := n.writes
	m.mu.RUnlock()
	if writes {
		n.publish(a)
	}
}

// publish sends an announcement. The next one makes up for a lost one.
func (n *metaNodes) publish(a announcement) { _ = n.conn.Publish(entrySubject, a.encode()) }

// onAnnouncement handles an announcement.
func (m *meta) onAnnouncement(message *nats.Msg) {
	a, err := decodeAnnouncement(message.Data)
	if err != nil {
		m.store.options.Logger.Warn("topic store: an announcement cannot be read", "error", err)
		return
	}
	n := m.nodes
	m.mu.Lock()
	deposed := a.Term > n.term && n.writes
	if a.Term > n.term {
		n.startTerm(a.Term)
	}
	if a.Term == n.term && !n.writes && !n.reachable || deposed {
		n.reachable = true
		m.notify()
	}
	n.announcedEnd = max(n.announcedEnd, a.Sequence)
	if len(a.Data) > 0 && a.Sequence > m.state.last && n.size+len(a.Data) <= bufferedBytes && !n.writes {
		n.buffered = append(n.buffered, topic.Entry{Sequence: a.Sequence, Data: a.Data})
		n.size += len(a.Data)
	}
	m.mu.Unlock()
	if deposed {
		// The append in flight is in the log already, or never will be.
		m.log.abandon(fmt.Errorf("%w: another node writes", topic.ErrUncertain))
	}
	m.wakeUp()
}
