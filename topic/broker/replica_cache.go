package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Answers to clients use replicas that the store reported a little earlier: asking it
// for each answer would cost more than the answer.
const (
	// replicasFresh is how long an answer of the store is valid. With more logs than
	// replicasPerSecond it is extended, so that the questions per second stay within
	// replicasPerSecond.
	replicasFresh     = time.Second
	replicasPerSecond = 500
	// replicasWait bounds the wait of the first caller that asks for a log.
	replicasWait = 300 * time.Millisecond
	// replicasAsked bounds the questions in flight, each of which takes at most
	// replicasTimeout.
	replicasAsked   = 16
	replicasTimeout = 5 * time.Second
	// replicasKept is how long unused answers are kept.
	replicasKept = 5 * time.Minute
)

// replicaCache holds what is known of the replicas of logs.
type replicaCache struct {
	mu      sync.Mutex
	logs    map[string]*knownReplicas
	waiting []string // logs to be asked for, in order
	asking  int
}

// knownReplicas holds what is known of one log's replicas.
type knownReplicas struct {
	topic.Replicas
	// known reports whether the store has answered once; the last answer is used until
	// a newer one arrives.
	known bool
	// asked is the time of the last question, wanted that of the last use; underWay
	// reports that the answer is outstanding, and answered is closed when it arrives.
	asked, wanted time.Time
	underWay      bool
	answered      chan struct{}
}

// replicasOf returns a log's replicas as last reported, after a wait if there is no
// report yet.
func (b *Broker) replicasOf(ctx context.Context, log string) (topic.Replicas, bool) {
	b.awaitReplicas(ctx, []string{log})
	c := &b.replicas
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.logs[log]; k != nil && k.known {
		return k.Replicas, true
	}
	return topic.Replicas{}, false
}

// awaitReplicas has the store asked for logs whose answers are not fresh, and waits
// briefly for those of which nothing is known yet.
func (b *Broker) awaitReplicas(ctx context.Context, logs []string) {
	now := time.Now()
	var wait []<-chan struct{}
	c := &b.replicas
	c.mu.Lock()
	for _, log := range logs {
		if answered := c.want(log, now); answered != nil {
			wait = append(wait, answered)
		}
	}
	for c.asking < min(replicasAsked, len(c.waiting)) {
		c.asking++
		b.group.Go("ask for replicas", b.askReplicas)
	}
	c.mu.Unlock()
	if len(wait) == 0 {
		return
	}
	over := time.NewTimer(replicasWait)
	defer over.Stop()
	for _, answered := range wait {
		select {
		case <-answered:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// want queues the question for a log if it is due. It returns a channel if nothing is
// known and the caller should wait.
func (c *replicaCache) want(log string, now time.Time) <-chan struct{} {
	k := c.logs[log]
	if k == nil {
		if c.logs == nil {
			c.logs = map[string]*knownReplicas{}
		}
		k = &knownReplicas{answered: make(chan struct{})}
		c.logs[log] = k
	}
	k.wanted = now
	fresh := max(replicasFresh, time.Duration(len(c.logs))*time.Second/replicasPerSecond)
	if !k.underWay && now.Sub(k.asked) >= fresh {
		k.asked, k.underWay = now, true
		c.waiting = append(c.waiting, log)
	}
	if !k.known && k.underWay && now.Sub(k.asked) < replicasWait {
		return k.answered
	}
	return nil
}

// askReplicas asks the store until the queue is empty.
func (b *Broker) askReplicas(ctx context.Context) error {
	c, cluster := &b.replicas, b.cluster
	for {
		log, more := c.next(ctx.Err() != nil)
		if !more {
			return nil
		}
		asking, cancel := context.WithTimeout(ctx, replicasTimeout)
		found, err := cluster.Replicas(asking, log)
		cancel()
		c.answer(log, found, err)
	}
}

// next takes the next log from the queue; more is false if there is none or if end is
// set, and then the asking goroutine ends.
func (c *replicaCache) next(end bool) (log string, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end || len(c.waiting) == 0 {
		c.asking--
		return "", false
	}
	log = c.waiting[0]
	c.waiting = c.waiting[1:]
	return log, true
}

// answer records the store's answer for a log. While no node knows, the last answer
// stays, without its leader.
func (c *replicaCache) answer(log string, found topic.Replicas, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.logs[log]
	if k == nil {
		return
	}
	k.underWay = false
	if err != nil {
		k.Leader = 0
	} else {
		k.Replicas, k.known = found, true
	}
	close(k.answered)
	k.answered = make(chan struct{})
}

// prune removes answers that have not been used for replicasKept.
func (c *replicaCache) prune(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for log, k := range c.logs {
		if !k.underWay && now.Sub(k.wanted) > replicasKept {
			delete(c.logs, log)
		}
	}
}

// AwaitReplicas waits until the store has reported the replicas of all these
// partitions, at most 300 ms: for calls that describe many at once.
func (b *Broker) AwaitReplicas(ctx context.Context, partitions []*Partition) {
	logs := make([]string, len(partitions))
	for i, p := range partitions {
		logs[i] = p.logName()
	}
	b.awaitReplicas(ctx, logs)
}

// Replicas returns the brokers that keep the partition, as reported by the store about
// a second ago, or the brokers of its target while there is no report. It waits at most
// 300 ms for a first report.
func (p *Partition) Replicas() []int32 {
	if known, ok := p.broker.replicasOf(context.Background(), p.logName()); ok {
		return preferredFirst(known.Nodes, p.Target())
	}
	return p.Target()
}

// InSync returns the replicas that are alive and have the whole partition, as reported
// by the store about a second ago; none while there is no report.
func (p *Partition) InSync() []int32 {
	known, _ := p.broker.replicasOf(context.Background(), p.logName())
	alive := p.broker.Alive()
	current := slices.DeleteFunc(slices.Clone(known.Current), func(id int32) bool { return !slices.Contains(alive, id) })
	return preferredFirst(current, p.Target())
}

// preferredFirst returns nodes in the order of a target; nodes that are not in it come
// last.
func preferredFirst(nodes, target []int32) []int32 {
	ordered := make([]int32, 0, len(nodes))
	for _, id := range target {
		if slices.Contains(nodes, id) {
			ordered = append(ordered, id)
		}
	}
	for _, id := range nodes {
		if !slices.Contains(ordered, id) {
			ordered = append(ordered, id)
		}
	}
	return ordered
}
