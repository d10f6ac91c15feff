package topic

import (
	"context"
	"slices"
	"sync"
	"time"
)

// What is told of replicas is what the store said a little earlier: to ask it for
// each answer to a client would cost more than the answer.
const (
	// replicasFresh is how long an answer of the store is good for; with more logs
	// than replicasPerSecond it is as much longer, so that there are never more
	// questions than that in a second.
	replicasFresh     = time.Second
	replicasPerSecond = 500
	// replicasWait is how long who asks for the first time waits.
	replicasWait = 300 * time.Millisecond
	// replicasAsked is how many questions are under way at a time, each for at most
	// replicasTimeout.
	replicasAsked   = 16
	replicasTimeout = 5 * time.Second
	// replicasKept is how long what nobody wants is remembered.
	replicasKept = 5 * time.Minute
)

// replicaCache is what is known of the replicas of logs.
type replicaCache struct {
	mu      sync.Mutex
	logs    map[string]*knownReplicas
	waiting []string // to be asked, in order
	asking  int
}

// knownReplicas is what is known of those of one log.
type knownReplicas struct {
	Replicas
	// known says that the store has answered once; the last answer stays while
	// there is no newer one.
	known bool
	// asked is when it was asked last, wanted when somebody wanted to know; under
	// way says that it was not answered yet, and answered is closed when it is.
	asked, wanted time.Time
	underWay      bool
	answered      chan struct{}
}

// known returns what is known of a log, after a wait if it is nothing.
func (b *Broker) replicasOf(ctx context.Context, log string) (Replicas, bool) {
	b.awaitReplicas(ctx, []string{log})
	c := &b.replicas
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.logs[log]; k != nil && k.known {
		return k.Replicas, true
	}
	return Replicas{}, false
}

// awaitReplicas has the store asked for logs whose answers are not fresh, and
// waits, not for long, for those of which nothing is known yet.
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

// want queues the question for a log if it is time for it. It returns a channel if
// nothing is known and whoever wants to know should wait.
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

// askReplicas asks the store as long as there is something to ask.
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

// next takes the log that is to be asked for next; if there is none, or all ends,
// who asks ends.
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

// answer notes what the store said of a log. While nobody knows, the last answer
// stays, without its leader.
func (c *replicaCache) answer(log string, found Replicas, err error) {
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

// prune forgets what nobody has wanted for long.
func (c *replicaCache) prune(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for log, k := range c.logs {
		if !k.underWay && now.Sub(k.wanted) > replicasKept {
			delete(c.logs, log)
		}
	}
}

// AwaitReplicas waits until the store has told of all these partitions who keeps
// them, at most 300 ms: for what describes many at once.
func (b *Broker) AwaitReplicas(ctx context.Context, partitions []*Partition) {
	if b.cluster == nil {
		return
	}
	logs := make([]string, len(partitions))
	for i, p := range partitions {
		logs[i] = p.logName()
	}
	b.awaitReplicas(ctx, logs)
}

// Replicas returns the brokers that have it: those that the store says, about a
// second ago, or those that are to have it, as long as it says nothing. It waits at
// most 300 ms, where nothing is known yet.
func (p *Partition) Replicas() []int32 {
	if p.broker.cluster == nil {
		return []int32{p.broker.Node()}
	}
	if known, ok := p.broker.replicasOf(context.Background(), p.logName()); ok {
		return preferredFirst(known.Nodes, p.Target())
	}
	return p.Target()
}

// InSync returns those of the replicas that are alive and have all of it, as the
// store said about a second ago; none while nothing is known.
func (p *Partition) InSync() []int32 {
	cluster := p.broker.cluster
	if cluster == nil {
		return []int32{p.broker.Node()}
	}
	known, _ := p.broker.replicasOf(context.Background(), p.logName())
	alive := cluster.Alive()
	current := slices.DeleteFunc(slices.Clone(known.Current), func(id int32) bool { return !slices.Contains(alive, id) })
	return preferredFirst(current, p.Target())
}

// preferredFirst returns nodes in the order of a target; those that are not in it
// come last.
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
