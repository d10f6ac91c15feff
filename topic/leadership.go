package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// Who leads a partition. The engine elects a leader for each log; the broker of
// that node makes itself the leader of the partition. On each broker a partition
// goes through these states (those of partitionState; closed and deleted are
// reached from all of them):
//
//	            claim: the record in the metadata names
//	            us, with an epoch that is one higher
//	 following ─────────────────────────────────▶ recovering ◀──┐
//	     ▲                                          │   │       │ an append was fenced,
//	     │   resign: we do not lead the log,        │   │ load, │ or not answered
//	     │   the record has a higher epoch,         │   │ fence │
//	     ├──────────────────────────────────────────┤   ▼       │
//	     │   half of the nodes or more are gone     └── open ───┘
//	     │                                              │
//	     └────────────────────────────────── resigning ◀┘ planned: see Leave
//	           what was under way has landed
//
//   - Claim: only while the log is led by this node, by compare-and-set on the
//     topic's record. Epochs are claimed once, and only rise.
//   - Load: what is in the log decides. An entry of a higher epoch than ours says
//     that we were deposed.
//   - Fence: an entry without records. A leader has one entry under way at a time,
//     so a former one can only have one that names the same sequence.
//   - Resign: what is under way is given up at once with ErrNotLeader. It may be in
//     the log, where the next leader finds it: a producer that sends it again is
//     answered as for the first time.
//
// Safety is the fence's alone: an entry names the sequence that it follows, and
// whoever sends it knows the entry of that sequence, and all before. So two brokers
// that both believe to lead a partition cannot both append. What the metadata and
// the engine say of leaders only decides who tries.
//
// One goroutine follows the catalog and the cluster (follow.go), and decides who
// claims and resigns. A claim, of all partitions of a topic together, and each
// recovery have a goroutine of their own: at most one for each topic and for each
// partition, also where a partition is resigned and claimed again meanwhile.

const (
	// claimAgain is how long a broker waits after a claim that failed.
	claimAgain = 100 * time.Millisecond
	// claimDeposed is how long it waits after the metadata, or the log, has
	// contradicted the engine about who leads.
	claimDeposed = 500 * time.Millisecond
)

// term is what a broker does for being a partition's leader. It is guarded by
// Partition.mu.
type term struct {
	cancel func()        // ends the recovery that is under way
	ended  chan struct{} // closed when the last recovery has ended
	began  time.Time     // when it was claimed; zero once it is open
	after  time.Time     // when it may be claimed again
}

// end ends the recovery that is under way.
func (t *term) end() {
	if t.cancel != nil {
		t.cancel()
	}
}

// beginRecovery has the log looked at, after a wait, when the recovery before has
// ended. It is called with the lock held.
func (p *Partition) beginRecovery(wait time.Duration) {
	p.term.end()
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := p.term.ended, make(chan struct{})
	p.term.cancel, p.term.ended = cancel, ended
	p.broker.group.Go("recover "+p.String(), func(stop context.Context) error {
		defer close(ended)
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		if before != nil {
			<-before
		}
		if wait > 0 && !lifecycle.Sleep(ctx, nil, wait) {
			return nil
		}
		return p.recover(ctx)
	})
}

// lead makes a partition that was claimed with an epoch recover, and tells
// whether it does: not if a higher epoch is known by now.
func (p *Partition) lead(epoch int32, began time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != following || p.epoch > epoch || p.broker.leaving.Load() {
		return false
	}
	p.state, p.loaded, p.trouble = recovering, false, nil
	p.producers = newProducers(p.broker.config.ProducersMax) // others may have led since
	p.epoch, p.leader, p.term.began = epoch, p.broker.Node(), began
	p.beginRecovery(0)
	return true
}

// opened is called when a recovery has found the end of the log.
func (p *Partition) opened() {
	p.mu.Lock()
	isOpen, began := p.state == open, p.term.began
	p.term.began = time.Time{}
	epoch, next := p.epoch, p.landed.Mark.Next
	p.mu.Unlock()
	if !isOpen {
		return
	}
	if !began.IsZero() {
		took := time.Since(began)
		p.broker.moves.gain(took)
		p.broker.log.Debug("partition is led here", "partition", p.String(), "epoch", epoch, "offset", next, "took", took)
		p.delays.resume(p)
	}
	if delays := p.delays.get(); delays != nil {
		delays.Resolve()
	}
}

// leads tells whether this broker leads it, or is about to.
func (s partitionState) leads() bool { return s == open || s == recovering || s == resigning }

// resign gives up the lead of a partition, and all that is under way.
func (p *Partition) resign(why error) {
	p.mu.Lock()
	if !p.state.leads() {
		p.mu.Unlock()
		return
	}
	p.stepDown(why)
}

// stepDown is resign, of a partition that is led. It is called with the lock held,
// and releases it.
func (p *Partition) stepDown(why error) {
	wasOpen := p.loaded
	p.state, p.loaded, p.trouble = following, false, nil
	p.term.end()
	if errors.Is(why, ErrNotLeader) {
		p.term.after = time.Now().Add(claimDeposed)
	}
	failed := p.giveUp()
	epoch := p.epoch
	p.mu.Unlock()

	for _, a := range failed {
		a.finish(fmt.Errorf("%w: %s: %w", ErrNotLeader, p, why))
	}
	p.delays.suspend()
	p.tail.clear()
	p.index.clear()
	p.broker.cold.forget(p)
	p.watchers.signal()
	if wasOpen {
		p.broker.moves.lose()
	}
	p.broker.log.Debug("partition is not led here any more", "partition", p.String(), "epoch", epoch, "failed", len(failed), "reason", why)
}

// follow takes over what the catalog says of the partition.
func (p *Partition) follow(record partitionRecord) {
	p.mu.Lock()
	p.start = max(p.start, record.Start)
	p.replicas = record.Replicas
	if record.Epoch < p.epoch {
		p.mu.Unlock()
		return // it is about an earlier leader
	}
	deposed := p.state.leads() && record.Epoch > p.epoch
	p.epoch, p.leader = record.Epoch, record.Leader
	if deposed { // at once: nothing of ours may have that epoch
		p.stepDown(fmt.Errorf("%w: node %d has claimed epoch %d", ErrNotLeader, record.Leader, record.Epoch))
		return
	}
	p.mu.Unlock()
}

// stillLeads returns ErrNotLeader if a record does not name this broker's present
// claim.
func (p *Partition) stillLeads(record partitionRecord) error {
	if p.broker.cluster == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.leads() || record.Leader != p.broker.Node() || record.Epoch != p.epoch {
		return fmt.Errorf("%w: %s is led by node %d", ErrNotLeader, p, record.Leader)
	}
	return nil
}

// lease returns the condition under which this broker may write about the
// partition: that the catalog names it as the leader.
func (p *Partition) lease(ctx context.Context) ([]Guard, error) {
	if p.broker.cluster == nil {
		return nil, nil
	}
	item, err := p.broker.store.Meta().Get(ctx, topicsPrefix+p.topic.name)
	if err != nil {
		return nil, err
	}
	record, err := readTopicRecord(item)
	if err != nil {
		return nil, err
	}
	if record.Deleting || record.ID != p.topic.id.String() || int(p.number) >= len(record.Partitions) {
		return nil, fmt.Errorf("%w: %s", ErrNoPartition, p)
	}
	if err := p.stillLeads(record.Partitions[p.number]); err != nil {
		return nil, err
	}
	return []Guard{{Key: item.Key, Revision: item.Revision}}, nil
}

// claimedAfter returns ErrNotLeader if an epoch, which the log has, is later than
// the one that was claimed.
func (p *Partition) claimedAfter(epoch int32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broker.cluster != nil && epoch > p.epoch {
		return fmt.Errorf("%w: the log of %s has epoch %d, we have claimed %d", ErrNotLeader, p, epoch, p.epoch)
	}
	return nil
}

// Leader returns the broker that leads it; -1 if none is known to be alive, if it is
// this one, which has not read the log yet, or if the topics have moved to a cluster.
func (p *Partition) Leader() int32 {
	if p.broker.moving.reads() != nil {
		return -1
	}
	p.mu.Lock()
	leader, ready := p.leader, p.ready() == nil
	p.mu.Unlock()
	node := p.broker.Node()
	if p.broker.cluster == nil {
		leader = node
	}
	switch {
	case leader == node && ready:
		return node
	case leader == node || leader == 0 || !slices.Contains(p.broker.Alive(), leader):
		return -1
	}
	return leader
}

// targets returns the nodes that are to keep the partition.
func (p *Partition) targets() []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replicas
}

// lookAtLeaders resigns what this broker does not lead any more, and claims what
// it leads now.
func (b *Broker) lookAtLeaders() {
	isolated, leaving := b.Isolated(), b.leaving.Load()
	why := errNotElected
	if isolated {
		why = errIsolated
	}
	now := time.Now()
	for _, t := range b.Topics() {
		if t.source != nil {
			continue
		}
		// Before the states, which a claim that is under way changes: what it has
		// claimed already must not be claimed twice, as then it would be deposed.
		claiming := t.claiming.Load()
		var claim []*Partition
		for _, p := range t.all() {
			leads := !isolated && b.cluster.Leads(p.logName())
			p.mu.Lock()
			state, after := p.state, p.term.after
			p.mu.Unlock()
			switch {
			case leads && state == following && !leaving && !now.Before(after):
				claim = append(claim, p)
			case !leads && (state == open || state == recovering): // what resigns is Leave's
				p.resign(why)
			}
		}
		if len(claim) > 0 && !claiming {
			t.claiming.Store(true)
			b.group.Go("claim "+t.name, func(ctx context.Context) error {
				if b.passOn(ctx, claim); !b.claim(ctx, t, claim, now) {
					lifecycle.Sleep(ctx, nil, claimAgain)
				}
				t.claiming.Store(false)
				b.look() // for what was to be claimed meanwhile
				return nil
			})
		}
	}
}

// Why a broker leads a partition no more.
var (
	errNotElected = errors.New("another node leads its log, or none")
	errIsolated   = errors.New("half of the nodes or more cannot be reached")
	errLeaving    = errors.New("the broker stops")
)

// Isolated tells whether this broker sees half of the nodes or fewer: the others
// may have other leaders by now.
func (b *Broker) Isolated() bool { return 2*len(b.Alive()) <= b.Registered() }

// claim writes into the metadata that this broker leads partitions of a topic,
// and makes them recover. It tells whether all do.
func (b *Broker) claim(ctx context.Context, t *Topic, partitions []*Partition, began time.Time) bool {
	epochs := map[*Partition]int32{}
	_, err := b.change(ctx, t.name, func(record *topicRecord) error {
		clear(epochs)
		for _, p := range partitions {
			if record.Deleting || record.ID != t.id.String() || int(p.number) >= len(record.Partitions) || !b.cluster.Leads(p.logName()) {
				continue
			}
			claimed := &record.Partitions[p.number]
			claimed.Epoch++
			claimed.Leader = b.Node()
			epochs[p] = claimed.Epoch
		}
		if len(epochs) == 0 {
			return errNotElected
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrNoTopic), errors.Is(err, errNotElected):
		return false
	case err != nil:
		if ctx.Err() == nil {
			b.log.Warn("partitions cannot be claimed, trying again", "topic", t.name, "partitions", len(partitions), "error", err)
		}
		return false
	}
	all := len(epochs) == len(partitions)
	for p, epoch := range epochs {
		all = p.lead(epoch, began) && all
	}
	return all
}

// moves counts partitions that this broker began and ceased to lead, for the log.
type moves struct {
	mu           sync.Mutex
	gained, lost int
	longest      time.Duration
}

func (m *moves) gain(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gained++
	m.longest = max(m.longest, took)
}

func (m *moves) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost++
}

// tellMoves logs what has moved since it was called last.
func (b *Broker) tellMoves() {
	m := &b.moves
	m.mu.Lock()
	gained, lost, longest := m.gained, m.lost, m.longest
	m.gained, m.lost, m.longest = 0, 0, 0
	m.mu.Unlock()
	if gained+lost == 0 {
		return
	}
	leads := 0
	for _, p := range b.partitions() {
		if p.Ready() == nil {
			leads++
		}
	}
	b.log.Info("leaders have moved", "node", b.Node(), "gained", gained, "lost", lost, "leads", leads, "longest", longest)
}
