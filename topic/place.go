package topic

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
)

// Each node brings the partitions that it leads to where they are to be: their
// logs to the nodes of the target, and their lead to the preferred one. Nothing of
// that is remembered: a node that begins to lead a partition compares what is
// with what is to be, and so a move goes on wherever its leader is.
const (
	// placedAtOnce is how many partitions one node moves at a time.
	placedAtOnce = 4
	// placeEvery is how often it looks while something is being moved, and
	// placeIdle how often otherwise, beside whenever something changes.
	placeEvery = time.Second
	placeIdle  = 30 * time.Second
	// placeSettle is how long it waits for more changes before it looks.
	placeSettle = 50 * time.Millisecond
	// placeTimeout bounds each question and each step.
	placeTimeout = 10 * time.Second
	// placeTurn is how long a move may hold up others: then it is their turn.
	placeTurn = time.Minute
)

// Target returns the brokers that are to have it, the preferred leader first.
func (p *Partition) Target() []int32 {
	if p.broker.cluster == nil {
		return []int32{p.broker.Node()}
	}
	return slices.Clone(p.targets())
}

// placing is what a node knows of the partitions that it leads.
type placing struct {
	broker *Broker
	// led has those that this node leads, by the names of their logs.
	led map[string]*ledPartition
	// balanced is when the lead was given back to preferred leaders.
	balanced time.Time
}

// ledPartition is a partition that this node leads.
type ledPartition struct {
	log, topic   string
	number       int32
	target       []int32
	delays       string // its log of delayed records, if it may have one
	epoch, elect int32
	// placed is the target where all its logs were found to be.
	placed []int32
	// began is when it was its turn to be moved; zero before.
	began time.Time
	// failed is the trouble that was logged last.
	failed string
}

// keepPlacing places what this node leads, whenever something may have changed.
func (b *Broker) keepPlacing(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	defer b.store.Meta().Watch(topicsPrefix, signal)()
	defer b.store.Meta().Watch(nodesPrefix, signal)()
	defer b.cluster.Watch(signal)()
	pl := &placing{broker: b, led: map[string]*ledPartition{}, balanced: time.Now()}
	signal()
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

// moving tells whether something is not where it is to be.
func (pl *placing) moving() bool {
	for _, led := range pl.led {
		if !slices.Equal(led.placed, led.target) {
			return true
		}
	}
	return false
}

// round looks at all partitions that this node leads, and makes a step with some.
func (pl *placing) round(ctx context.Context, now time.Time) {
	b := pl.broker
	records, err := b.records(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Error("the topics' records cannot be read", "error", err)
		}
		return
	}
	pl.take(records)
	pl.place(ctx, now)
	pl.giveBack(ctx, now)
	b.replicas.prune(now)
	b.drainRest(ctx, records)
}

// take takes over what the records say.
func (pl *placing) take(records []namedRecord) {
	b := pl.broker
	led := map[string]*ledPartition{}
	for _, record := range records {
		for number, p := range record.Partitions {
			names := record.names(number)
			log := names.records
			if p.Deleting || !b.cluster.Leads(log) {
				continue
			}
			known := pl.led[log]
			if known == nil || known.epoch != p.Epoch {
				known = &ledPartition{log: log, topic: record.name, number: int32(number)}
			}
			known.target, known.epoch, known.elect = p.Replicas, p.Epoch, p.Elect
			if known.delays = ""; record.Delays {
				known.delays = names.delays
			}
			led[log] = known
		}
	}
	pl.led = led
}

// place makes a step with those that are not where they are to be: those first
// whose turn it is already, then those that wait longest.
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

// step makes one with the logs of a partition.
func (pl *placing) step(ctx context.Context, led *ledPartition) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	cluster := pl.broker.cluster
	if pl.broker.mustWait(ctx, led) {
		return
	}
	placed, err := cluster.Place(ctx, led.log, led.target)
	if err == nil && led.delays != "" {
		var both bool
		if both, err = cluster.Place(ctx, led.delays, led.target); errors.Is(err, ErrNoLog) {
			both, err = true, nil // none was delayed so far
		}
		placed = placed && both
	}
	switch {
	case err == nil && placed:
		led.placed, led.failed = led.target, ""
	case err == nil || errors.Is(err, ErrNoLog) || errors.Is(err, ErrClosed) || ctx.Err() != nil:
	case led.failed != err.Error():
		led.failed = err.Error()
		pl.broker.log.Warn("partition cannot be moved yet", "topic", led.topic, "partition", led.number, "to", led.target, "error", err)
	}
}

// mustWait tells whether a partition is to go to a node that is dead.
func (b *Broker) mustWait(ctx context.Context, led *ledPartition) bool {
	dead := lacking(b.there(led.target), led.target)
	if len(dead) == 0 {
		return false
	}
	known, err := b.cluster.Replicas(ctx, led.log)
	return err != nil || len(lacking(known.Nodes, dead)) > 0
}

// giveBack hands partitions over to their preferred leaders, if somebody wants it,
// or it is time.
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

// ready tells whether a node is there to lead.
func ready(nodes []Node, id int32) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == id && n.Alive && !n.Draining })
}

// handOver lets a partition's preferred leader lead it, if it has all of it.
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
	if err != nil && !errors.Is(err, ErrNoLog) && ctx.Err() == nil {
		b.log.Warn("partition stays with its leader", "topic", led.topic, "partition", led.number, "to", to, "error", err)
	}
}

// leavePartition hands a partition over as before a planned stop.
func (b *Broker) leavePartition(ctx context.Context, led *ledPartition) error {
	t, err := b.Topic(led.topic)
	if err != nil {
		return err
	}
	p, err := t.Find(led.number)
	if err != nil || p.logName() != led.log || p.Ready() != nil {
		return err // there is another by now, or it does not lead it any more
	}
	// Not to be claimed again at once, while this node still leads the log.
	return p.leave(ctx, fmt.Errorf("%w: it goes back to node %d", ErrNotLeader, led.target[0]))
}
