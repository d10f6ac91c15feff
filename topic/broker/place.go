package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Each node places the partitions that it leads: it moves their logs to the nodes of
// the target, and their leadership to the preferred leader. No state of that is stored:
// a node that begins to lead a partition compares the present nodes with the target, so
// a reassignment continues under every leader.
const (
	// placedAtOnce bounds the partitions that one node reassigns at a time.
	placedAtOnce = 4
	// placeEvery is how often the loop runs during a reassignment, and placeIdle how
	// often otherwise; changes wake it too.
	placeEvery = time.Second
	placeIdle  = 30 * time.Second
	// placeSettle is how long the loop waits for more changes before it runs.
	placeSettle = 50 * time.Millisecond
	// placeTimeout bounds each query and each step.
	placeTimeout = 10 * time.Second
	// placeTurn is how long a reassignment may delay others before their turn comes.
	placeTurn = time.Minute
)

// Target returns the brokers that are to keep the partition, the preferred leader first.
func (p *Partition) Target() []int32 {
	return slices.Clone(p.targets())
}

// placing is the state of the placement loop.
type placing struct {
	broker *Broker
	// led holds the partitions that this node leads, by the names of their logs.
	led map[string]*ledPartition
	// balanced is when leadership was last given back to preferred leaders.
	balanced time.Time
}

// ledPartition is a partition that this node leads.
type ledPartition struct {
	log, topic   string
	number       int32
	target       []int32
	logs         []string // of all that it may have; see logsOf
	epoch, elect int32
	// placed is the target that all its logs were found to match.
	placed []int32
	// began is when its turn to be reassigned began; zero before.
	began time.Time
	// failed is the last error that was logged.
	failed string
}

// keepPlacing places the partitions that this node leads, whenever something may have
// changed.
func (b *Broker) keepPlacing(ctx context.Context) error {
	changed := lifecycle.NewSignal()
	defer b.store.Meta().Watch(catalog.TopicsPrefix, changed.Wake)()
	defer b.store.Meta().Watch(catalog.NodesPrefix, changed.Wake)()
	defer b.cluster.Watch(changed.Wake)()
	pl := &placing{broker: b, led: map[string]*ledPartition{}, balanced: time.Now()}
	changed.Wake()
	for {
		next := placeIdle
		if pl.moving() {
			next = placeEvery
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
			timer.Stop()
			if !lifecycle.Sleep(ctx, nil, placeSettle) {
				return nil
			}
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		pl.round(ctx, time.Now())
	}
}

// moving reports whether a partition is not on its target.
func (pl *placing) moving() bool {
	for _, led := range pl.led {
		if !slices.Equal(led.placed, led.target) {
			return true
		}
	}
	return false
}

// round checks all partitions that this node leads, and makes a step for some.
func (pl *placing) round(ctx context.Context, now time.Time) {
	b := pl.broker
	records, err := b.records(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Error("the topics' records cannot be read", "error", err)
		}
		return
	}
	pl.take(ctx, records)
	pl.place(ctx, now)
	pl.giveBack(ctx, now)
	b.replicas.prune(now)
	b.drainRest(ctx, records)
}

// take updates the led partitions from the records.
func (pl *placing) take(ctx context.Context, records []namedRecord) {
	b := pl.broker
	led := map[string]*ledPartition{}
	for _, record := range records {
		for number, p := range record.Partitions {
			log := record.Names(number).Records
			if p.Deleting || !b.cluster.Leads(log) {
				continue
			}
			known := pl.led[log]
			if known == nil || known.epoch != p.Epoch {
				known = &ledPartition{log: log, topic: record.name, number: int32(number)}
			}
			known.target, known.epoch, known.elect = p.Replicas, p.Epoch, p.Elect
			logs, err := b.logsOf(ctx, record.Topic, number)
			if err != nil && ctx.Err() == nil {
				b.log.Error("the logs of a partition are not known", "topic", record.name, "partition", number, "error", err)
			}
			if !slices.Equal(known.logs, logs) {
				known.logs, known.placed = logs, nil
			}
			led[log] = known
		}
	}
	pl.led = led
}

// place makes a step for partitions that are not on their targets: first those whose
// turn has begun, then those that have waited longest.
func (pl *placing) place(ctx context.Context, now time.Time) {
	var wanting []*ledPartition
	for _, led := range pl.led {
		if slices.Equal(led.placed, led.target) || len(led.target) == 0 {
			led.began = time.Time{}
			continue
		}
		wanting = append(wanting, led)
	}
	turn := func(led *ledPartition) int {
		switch {
		case led.began.IsZero():
			return 1
		case now.Sub(led.began) < placeTurn:
			return 0
		default:
			return 2
		}
	}
	slices.SortFunc(wanting, func(x, y *ledPartition) int {
		return cmp.Or(cmp.Compare(turn(x), turn(y)), x.began.Compare(y.began), cmp.Compare(x.log, y.log))
	})
	var steps errgroup.Group
	for _, led := range wanting[:min(len(wanting), placedAtOnce)] {
		if turn(led) != 0 {
			led.began = now
		}
		steps.Go(func() error {
			pl.step(ctx, led)
			return nil
		})
	}
	_ = steps.Wait()
}

// step makes one step with the logs of a partition.
func (pl *placing) step(ctx context.Context, led *ledPartition) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	all, err := true, error(nil)
	for i, log := range led.logs {
		var placed bool
		if placed, err = pl.broker.placeLog(ctx, log, led.target); i > 0 && errors.Is(err, topic.ErrNoLog) {
			placed, err = true, nil // no record was delayed so far, or the generation was replaced
		}
		if all = all && placed; err != nil {
			break
		}
	}
	switch {
	case err == nil && all:
		led.placed, led.failed = led.target, ""
	case err == nil || errors.Is(err, topic.ErrNoLog) || errors.Is(err, topic.ErrClosed) || ctx.Err() != nil:
	case led.failed != err.Error():
		led.failed = err.Error()
		pl.broker.log.Warn("partition cannot be moved yet", "topic", led.topic, "partition", led.number, "to", led.target, "error", err)
	}
}

// placeLog makes one step with a log, unless the target has a dead node that does not keep it yet.
func (b *Broker) placeLog(ctx context.Context, log string, target []int32) (placed bool, err error) {
	if dead := lacking(b.there(target), target); len(dead) > 0 {
		known, err := b.cluster.Replicas(ctx, log)
		if err != nil || len(lacking(known.Nodes, dead)) > 0 {
			return false, err
		}
	}
	return b.cluster.Place(ctx, log, target)
}

// giveBack transfers partitions to their preferred leaders, on request or when it is
// time.
func (pl *placing) giveBack(ctx context.Context, now time.Time) {
	b := pl.broker
	interval := b.config.LeaderBalanceInterval
	due := interval > 0 && now.Sub(pl.balanced) >= interval
	if due {
		pl.balanced = now
	}
	node, nodes := b.cluster.Node(), b.Nodes()
	var steps errgroup.Group
	steps.SetLimit(placedAtOnce)
	for _, log := range slices.Sorted(maps.Keys(pl.led)) {
		led := pl.led[log]
		wished := led.elect > 0 && led.elect == led.epoch
		if !due && !wished || len(led.target) == 0 || led.target[0] == node || !ready(nodes, led.target[0]) {
			continue
		}
		steps.Go(func() error {
			pl.handOver(ctx, led)
			return nil
		})
	}
	_ = steps.Wait()
}

// ready reports whether a node is available as a leader.
func ready(nodes []topic.Node, id int32) bool {
	return slices.ContainsFunc(nodes, func(n topic.Node) bool { return n.ID == id && n.Alive && !n.Draining })
}

// handOver transfers a partition to its preferred leader, if that has all of it.
func (pl *placing) handOver(ctx context.Context, led *ledPartition) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	b, to := pl.broker, led.target[0]
	known, err := b.cluster.Replicas(ctx, led.log)
	if err == nil && (known.Moving || !slices.Contains(known.Current, to)) {
		return
	}
	if err == nil {
		err = b.leavePartition(ctx, led)
	}
	if err != nil && !errors.Is(err, topic.ErrNoLog) && ctx.Err() == nil {
		b.log.Warn("partition stays with its leader", "topic", led.topic, "partition", led.number, "to", to, "error", err)
	}
}

// leavePartition transfers a partition as before a planned stop.
func (b *Broker) leavePartition(ctx context.Context, led *ledPartition) error {
	t, err := b.Topic(led.topic)
	if err != nil {
		return err
	}
	p, err := t.Find(led.number)
	if err != nil || p.logName() != led.log || p.Ready() != nil {
		return err // it was replaced, or this broker no longer leads it
	}
	// It must not be claimed again at once, while this node still leads the log.
	return p.leave(ctx, fmt.Errorf("%w: it goes back to node %d", topic.ErrNotLeader, led.target[0]))
}
