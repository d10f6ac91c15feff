package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Leadership of partitions. The engine elects a leader for each log; the broker of
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
//	           appends in flight have landed
//
//   - Claim: only while this node leads the log, by compare-and-set on the topic's
//     record. Epochs are claimed once, and only rise.
//   - Load: the log decides. An entry of a higher epoch than ours means that we were
//     deposed.
//   - Fence: an entry without records. A leader has one entry in flight at a time,
//     so a former leader can only have one that names the same sequence.
//   - Resign: appends in flight fail at once with ErrNotLeader. They may be in the
//     log, where the next leader finds them: a producer that sends them again gets
//     the same answer as for the first time.
//
// Safety depends on the fence alone: an entry names the sequence that it follows, and
// its sender knows the entry of that sequence and all before. So two brokers that both
// believe they lead a partition cannot both append. The metadata and the engine only
// decide which broker tries.
//
// One goroutine follows the catalog and the cluster (follow.go), and decides which
// partitions to claim and resign. A claim, of all partitions of a topic together, and
// each recovery run in goroutines of their own: at most one for each topic and for each
// partition, even if a partition is resigned and claimed again in the meantime.

const (
	// claimAgain is the wait after a claim that failed.
	claimAgain = 100 * time.Millisecond
	// claimDeposed is the wait after the metadata, or the log, has contradicted the
	// engine about the leader.
	claimDeposed = 500 * time.Millisecond
)

// term is the state of a broker's work as a partition's leader. It is guarded by
// Partition.mu.
type term struct {
	cancel func() // ends the present recovery
	// endPass ends the present compaction, or has no effect; nil before the first.
	endPass func()
	ended   chan struct{} // closed when the last recovery has ended
	began   time.Time     // time of the claim; zero once the partition is open
	after   time.Time     // time of the next claim at the earliest
}

// end ends the present recovery, and the present compaction.
func (t *term) end() {
	if t.cancel != nil {
		t.cancel()
	}
	if t.endPass != nil {
		t.endPass()
	}
}

// beginRecoveryLocked starts a recovery, after a wait, when the one before has ended.
func (p *Partition) beginRecoveryLocked(wait time.Duration) {
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

// lead starts the recovery of a partition that was claimed with an epoch, and reports
// whether it did: it does not if a higher epoch is known by now.
func (p *Partition) lead(epoch int32, began time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != following || p.epoch > epoch || p.broker.leaving.Load() {
		return false
	}
	p.state, p.loaded, p.trouble = recovering, false, nil
	p.producers = newProducers(p.broker.config.ProducersMax) // another broker may have led since
	p.epoch, p.leader, p.term.began = epoch, p.broker.Node(), began
	p.beginRecoveryLocked(0)
	return true
}

// opening reports whether this broker should lead the partition, and has not opened it
// yet nor found that it cannot.
func (p *Partition) opening() bool {
	leads := !p.broker.Isolated() && p.broker.cluster.Leads(p.logName())
	p.mu.Lock()
	defer p.mu.Unlock()
	return leads && !p.loaded && p.trouble == nil && (p.state == following || p.state == recovering)
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
		p.broker.metrics.gained.Inc()
		p.broker.metrics.recovery.Observe(float64(took) / float64(time.Millisecond))
		p.broker.log.Debug("partition is led here", "partition", p.String(), "epoch", epoch, "offset", next, "took", took)
		p.delays.resume(p)
	}
	if delays := p.delays.get(); delays != nil {
		delays.Resolve()
	}
	p.broker.group.Go("end transactions of "+p.String(), p.endHanging)
}

// leads reports whether this broker leads the partition, or is about to.
func (s partitionState) leads() bool { return s == open || s == recovering || s == resigning }

// resign gives up the leadership of a partition, and its appends in flight.
func (p *Partition) resign(why error) {
	p.mu.Lock()
	if !p.state.leads() {
		p.mu.Unlock()
		return
	}
	p.stepDownLocked(why)
}

// stepDownLocked is resign for a partition that this broker leads. It is called with
// the lock held, and releases it.
func (p *Partition) stepDownLocked(why error) {
	wasOpen := p.loaded
	p.state, p.loaded, p.trouble = following, false, nil
	p.term.end()
	if errors.Is(why, topic.ErrNotLeader) {
		p.term.after = time.Now().Add(claimDeposed)
	}
	failed := p.giveUp()
	epoch := p.epoch
	p.mu.Unlock()

	for _, a := range failed {
		a.finish(fmt.Errorf("%w: %s: %w", topic.ErrNotLeader, p, why))
	}
	p.delays.suspend()
	p.tail.clear()
	p.index.clear()
	p.broker.cold.forget(p)
	p.watchers.signal()
	if wasOpen {
		p.broker.moves.lose()
		p.broker.metrics.lost.Inc()
	}
	p.broker.log.Debug("partition is not led here any more", "partition", p.String(), "epoch", epoch, "failed", len(failed), "reason", why)
}

// follow updates the partition from its record in the catalog.
func (p *Partition) follow(record catalog.Partition) {
	p.mu.Lock()
	p.start = max(p.start, record.Start)
	p.replicas = record.Replicas
	p.delayLog = p.delayLog || record.DelayLog
	if record.Epoch < p.epoch {
		p.mu.Unlock()
		return // an earlier leader's record
	}
	deposed := p.state.leads() && record.Epoch > p.epoch
	p.epoch, p.leader = record.Epoch, record.Leader
	if deposed { // at once: nothing of ours may have that epoch
		p.stepDownLocked(fmt.Errorf("%w: node %d has claimed epoch %d", topic.ErrNotLeader, record.Leader, record.Epoch))
		return
	}
	p.mu.Unlock()
}

// stillLeads returns ErrNotLeader if a record does not name this broker's present
// claim.
func (p *Partition) stillLeads(record catalog.Partition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.leads() || record.Leader != p.broker.Node() || record.Epoch != p.epoch {
		return fmt.Errorf("%w: %s is led by node %d", topic.ErrNotLeader, p, record.Leader)
	}
	return nil
}

// leaderGuard returns the guard for this broker's writes about the partition: the catalog
// must name it as the leader.
func (p *Partition) leaderGuard(ctx context.Context) (topic.Guard, error) {
	item, err := p.broker.store.Meta().Get(ctx, catalog.TopicsPrefix+p.topic.name)
	if err != nil {
		return topic.Guard{}, err
	}
	record, err := p.topic.recordIn(item)
	if err != nil {
		return topic.Guard{}, err
	}
	if record.Deleting || record.ID != p.topic.id.String() || int(p.number) >= len(record.Partitions) || record.Partitions[p.number].Deleting {
		return topic.Guard{}, fmt.Errorf("%w: %s", topic.ErrNoPartition, p)
	}
	if err := p.stillLeads(record.Partitions[p.number]); err != nil {
		return topic.Guard{}, err
	}
	return topic.Guard{Key: item.Key, Revision: item.Revision}, nil
}

// recordIn returns the record of the topic, as ReadTopic does: it is long if there are many partitions, and many guards are of one revision. It is
// not to be changed.
func (t *Topic) recordIn(item topic.Item) (catalog.Topic, error) {
	if last := t.lastRecord.Load(); last != nil && last.revision == item.Revision {
		return last.record, nil
	}
	record, err := catalog.ReadTopic(item)
	if err == nil {
		t.lastRecord.Store(&topicRecord{item.Revision, record})
	}
	return record, err
}

// topicRecord is the record of a topic at a revision of the metadata.
type topicRecord struct {
	revision uint64
	record   catalog.Topic
}

// Confirm returns nil if this broker leads the partition, as the metadata says that has everything written before the call. A leader that has
// lost touch with the others does not know that it was replaced: what it has never heard of may exist all the same. Errors: ErrNotLeader, and ErrRetry if
// the metadata does not answer.
func (p *Partition) Confirm(ctx context.Context) error {
	err := p.broker.store.Meta().Sync(ctx)
	if err == nil {
		_, err = p.leaderGuard(ctx)
	}
	if err == nil || errors.Is(err, topic.ErrNotLeader) {
		return err
	}
	return fmt.Errorf("%w: does this node still lead %s? %w", topic.ErrRetry, p, err)
}

// claimedAfter returns ErrNotLeader if an epoch found in the log is later than the
// claimed one.
func (p *Partition) claimedAfter(epoch int32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch > p.epoch {
		return fmt.Errorf("%w: the log of %s has epoch %d, we have claimed %d", topic.ErrNotLeader, p, epoch, p.epoch)
	}
	return nil
}

// Leader returns the broker that leads the partition. It returns -1 if no leader is
// known to be alive, if this broker leads it and has not read the log yet, or if the
// topics have been migrated to a cluster.
func (p *Partition) Leader() int32 {
	if p.broker.moving.reads() != nil {
		return -1
	}
	p.mu.Lock()
	leader, ready := p.leader, p.readyLocked() == nil
	p.mu.Unlock()
	node := p.broker.Node()
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

// lookAtLeaders resigns partitions that this broker no longer leads, and claims those
// that it leads now.
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
		// Read claiming before the states, which a claim in progress changes: a partition
		// that was claimed already must not be claimed twice, as that would depose it.
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
			case !leads && (state == open || state == recovering): // Leave ends a resigning one
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
				b.look() // to claim partitions that were added in the meantime
				return nil
			})
		}
	}
}

// Reasons why a broker no longer leads a partition.
var (
	errNotElected = errors.New("another node leads its log, or none")
	errIsolated   = errors.New("half of the nodes or more cannot be reached")
	errLeaving    = errors.New("the broker stops")
)

// Isolated reports whether this broker sees half of the nodes or fewer: the others
// may have other leaders by now.
func (b *Broker) Isolated() bool { return 2*len(b.Alive()) <= b.Registered() }

// claim records in the metadata that this broker leads partitions of a topic, and
// starts their recovery. It reports whether it claimed all of them.
func (b *Broker) claim(ctx context.Context, t *Topic, partitions []*Partition, began time.Time) bool {
	if err := b.makeUnmade(ctx, partitions); err != nil {
		if ctx.Err() == nil && !errors.Is(err, topic.ErrClosed) {
			b.log.Warn("logs of partitions cannot be made, trying again", "topic", t.name, "error", err)
		}
		return false
	}
	epochs := map[*Partition]int32{}
	// A store that is fenced for its migration can still be read.
	_, err := b.changeFenced(ctx, t.name, func(record *catalog.Topic) error {
		clear(epochs)
		for _, p := range partitions {
			if record.Deleting || record.ID != t.id.String() || int(p.number) >= len(record.Partitions) || !b.cluster.Leads(p.logName()) {
				continue
			}
			claimed := &record.Partitions[p.number]
			claimed.Epoch++
			claimed.Leader = b.Node()
			claimed.DelayLog = claimed.DelayLog || p.hasDelayLog()
			epochs[p] = claimed.Epoch
		}
		if len(epochs) == 0 {
			return errNotElected
		}
		return nil
	})
	switch {
	case errors.Is(err, topic.ErrNoTopic), errors.Is(err, errNotElected):
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

// makeUnmade makes the logs of partitions that were never made: that of the records before the
// first claim, that of delayed records before the first claim of a topic that may have any. So both
// exist once the metadata says so, and a missing one was lost.
func (b *Broker) makeUnmade(ctx context.Context, partitions []*Partition) error {
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(partitionsAtOnce)
	for _, p := range partitions {
		making.Go(func() error {
			p.mu.Lock()
			claimed := p.leader != 0
			p.mu.Unlock()
			if !claimed {
				if _, err := b.store.OpenLog(ctx, p.logName(), b.there(p.targets())); err != nil {
					return err
				}
			}
			if p.hasDelayLog() || !p.delays.mayHave() {
				return nil
			}
			_, err := p.openDelayLog(ctx)
			return err
		})
	}
	return making.Wait()
}

// moves counts the partitions that this broker began and ceased to lead, for the log.
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

// tellMoves logs the changes since the last call.
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
	b.log.Info("leadership has changed", "node", b.Node(), "gained", gained, "lost", lost, "leads", leads, "longest", longest)
}
