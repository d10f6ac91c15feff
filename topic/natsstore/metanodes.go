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

// The times of several nodes.
const (
	// leadsEvery is how often a node looks whether it leads the metadata's stream; it
	// is told of elections too.
	leadsEvery = 250 * time.Millisecond
	// announceEvery is how often the writer announces the log's end when it writes
	// nothing: within it others find what they missed.
	announceEvery = time.Second
	// askEvery is how often a node asks who writes while none is known.
	askEvery = 100 * time.Millisecond
	// settleMin is how long a barrier that resolves a doubt may take at first: the
	// next ones longer, up to Options.Timeout.
	settleMin = 500 * time.Millisecond
	// followTimeout bounds one try to read what was missed.
	followTimeout = 5 * time.Second
)

// pushedBytes is what announced entries may hold that the state does not have
// yet; others are read from the log.
const pushedBytes = 16 << 20

// metaNodes is what one of several nodes knows of who writes the metadata.
//
// A term is the time of one writer. It begins with an entry without changes, whose
// sequence is the term's number, and ends with the first append of the writer
// that fails: from one term on no entry of an earlier one can be written.
type metaNodes struct {
	conn  *nats.Conn
	leads func() bool // whether this node's engine leads the stream
	// own is in the entries that this node writes, since others may write the same.
	own int64

	// The goroutine's own.
	requests  *nats.Subscription // to changes, of the own term
	announced time.Time

	// Guarded by meta.mu.
	writes bool   // the newest term is this node's
	term   uint64 // the newest that is known
	// reachable says that the writer of the term was heard of since something
	// sent to it came back.
	reachable bool
	asked     time.Time
	// during ends with the term.
	during context.Context
	over   context.CancelFunc
	known  uint64 // the last entry that was announced
	pushed []topic.Entry
	size   int // of what is pushed
	// settling says that a goroutine resolves doubts.
	settling bool
}

// joinNodes begins to listen to others.
func (m *meta) joinNodes() error {
	engine := m.store.engine
	conn, err := connect(engine, m.store.options.Logger)
	if err != nil {
		return err
	}
	n := &metaNodes{conn: conn, leads: func() bool { return engine.leads(metaStream) }, own: rand.Int64()}
	n.during, n.over = context.WithCancel(context.Background())
	m.nodes = n
	elected := server.JSAdvisoryStreamLeaderElectedPre + "." + metaStream
	err = errors.Join(
		subscribe(conn, entrySubject, m.heard),
		subscribe(conn, askSubject, func(*nats.Msg) { m.beat() }),
		subscribe(conn, elected, func(*nats.Msg) { m.rouse() }),
	)
	if err != nil {
		m.leaveNodes()
	}
	return err
}

// leaveNodes ends the connection to others.
func (m *meta) leaveNodes() {
	if m.nodes == nil {
		return
	}
	m.mu.Lock()
	m.nodes.over()
	m.mu.Unlock()
	m.nodes.conn.Close()
}

// runNodes writes, or follows who does. It is the goroutine of one of several
// nodes.
func (m *meta) runNodes(ctx context.Context) error {
	defer m.yield()
	look := time.NewTicker(leadsEvery)
	defer look.Stop()
	var failed pauses
	for ctx.Err() == nil {
		busy, err := m.turn(ctx)
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

// turn does what there is to do, and tells whether there may be more.
func (m *meta) turn(ctx context.Context) (busy bool, err error) {
	n, leads := m.nodes, m.nodes.leads()
	m.mu.RLock()
	writes := n.writes
	m.mu.RUnlock()
	switch {
	case n.requests != nil && !(writes && leads):
		m.yield()
		return true, nil
	case n.requests != nil:
		if m.advance(ctx) {
			return true, nil
		}
		if time.Since(n.announced) >= announceEvery {
			n.announced = time.Now()
			m.beat()
		}
		m.settle()
		return false, nil
	case leads:
		return true, m.claim(ctx)
	}
	return false, m.follow(ctx)
}

// claim begins a term of this node.
func (m *meta) claim(ctx context.Context) error {
	if err := m.catchUp(ctx); err != nil {
		return err
	}
	data := appendHead(nil, changesHead{From: m.state.from, Bytes: m.state.bytes})
	if err := m.append(data); err != nil {
		return fmt.Errorf("begin to write the metadata: %w", err)
	}
	n, term := m.nodes, m.state.last
	requests, err := n.conn.Subscribe(writeSubject+"."+strconv.FormatUint(term, 10), m.requested(term))
	if err == nil {
		err = requests.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	newest := n.term
	if term > newest {
		n.begin(term)
		n.writes = true
		m.unsure = false // nothing from before can be written any more
	}
	m.tell()
	m.mu.Unlock()
	n.requests = requests
	if term <= newest {
		m.yield()
		return fmt.Errorf("begin to write the metadata at entry %d: another node has at %d", term, newest)
	}
	m.announce(topic.Entry{Sequence: term, Data: data})
	m.trim()
	return nil
}

// begin notes that a term has begun, with meta.mu held.
func (n *metaNodes) begin(term uint64) {
	n.over()
	n.term, n.writes, n.reachable = term, false, false
	n.during, n.over = context.WithCancel(context.Background())
}

// yield ends the term of this node, if there is one.
func (m *meta) yield() {
	m.cleaning = nil
	n := m.nodes
	m.mu.Lock()
	n.writes, n.reachable = false, false
	m.tell()
	m.mu.Unlock()
	if n.requests != nil {
		// What has arrived is turned back. Without a connection nothing is sent.
		_ = n.requests.Drain()
		n.requests = nil
	}
	m.turnBack(errTurnedBack)
}

// follow makes the state what was announced.
func (m *meta) follow(ctx context.Context) error {
	n := m.nodes
	m.mu.Lock()
	pushed, known := n.pushed, n.known
	n.pushed, n.size = nil, 0
	m.mu.Unlock()
	for _, entry := range pushed {
		if entry.Sequence != m.state.last+1 {
			continue
		}
		if err := m.apply(entry); err != nil {
			return err
		}
	}
	if known > m.state.last {
		within, cancel := context.WithTimeoutCause(ctx, followTimeout, errUnanswered)
		defer cancel()
		if err := m.read(within, known); err != nil {
			return err
		}
	}
	m.settle()
	return nil
}

// settle begins to resolve doubts: what this node sent and got no answer to. A
// barrier comes after it, if it goes to the same term, and no other has it.
func (m *meta) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes.settling || !m.unsure {
		return
	}
	m.nodes.settling = true
	m.work.Go("settle metadata", func(ctx context.Context) error {
		for limit := settleMin; !m.settled(ctx, limit); limit = min(2*limit, m.store.options.Timeout) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(askEvery):
			}
		}
		return nil
	})
}

// settled tries to resolve all doubts, and tells whether there are none. A barrier
// that is not answered does no harm, so it is not waited for as long as a write.
func (m *meta) settled(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m.mu.RLock()
	doubts := m.doubts
	m.mu.RUnlock()
	_, err := m.submit(ctx, operation{barrier: true})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && doubts == m.doubts {
		m.unsure = false
		m.tell()
	}
	if m.closed || !m.unsure {
		m.nodes.settling = false
	}
	return !m.nodes.settling
}

// announce tells others of an entry that this node has written.
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

// beat announces where the log ends, if this node writes.
func (m *meta) beat() {
	n := m.nodes
	m.mu.RLock()
	a := announcement{Term: n.term, Sequence: m.state.last}
	writes := n.writes
	m.mu.RUnlock()
	if writes {
		n.publish(a)
	}
}

// publish sends an announcement. One that is lost is made up for by the next.
func (n *metaNodes) publish(a announcement) { _ = n.conn.Publish(entrySubject, a.encode()) }

// heard takes an announcement.
func (m *meta) heard(message *nats.Msg) {
	a, err := decodeAnnouncement(message.Data)
	if err != nil {
		m.store.options.Logger.Warn("topic store: an announcement cannot be read", "error", err)
		return
	}
	n := m.nodes
	m.mu.Lock()
	deposed := a.Term > n.term && n.writes
	if a.Term > n.term {
		n.begin(a.Term)
	}
	if a.Term == n.term && !n.writes && !n.reachable || deposed {
		n.reachable = true
		m.tell()
	}
	n.known = max(n.known, a.Sequence)
	if len(a.Data) > 0 && a.Sequence > m.state.last && n.size+len(a.Data) <= pushedBytes && !n.writes {
		n.pushed = append(n.pushed, topic.Entry{Sequence: a.Sequence, Data: a.Data})
		n.size += len(a.Data)
	}
	m.mu.Unlock()
	if deposed {
		// What is being appended is in the log already, or never will be.
		m.log.abandon(fmt.Errorf("%w: another node writes", topic.ErrUncertain))
	}
	m.rouse()
}
