package natsstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/topic"
)

const (
	// tellSubject, followed by a dot and the number of a node, has what it tells the others. It may be lost.
	tellSubject = "sluice.nodes.tell"
	// maxTell is the most bytes of it.
	maxTell = 64 << 10
	// sizeFor is how long the size of the cluster is remembered: the engine looks at all logs for it.
	sizeFor = 10 * time.Second
)

// tales are what other nodes have told.
type tales struct {
	mu    sync.Mutex
	last  map[int32]tale
	size  int // of the cluster, in nodes
	sized time.Time
}

type tale struct {
	text []byte
	at   time.Time
}

// take records what a node tells; nothing: it is forgotten.
func (t *tales) take(node int32, text []byte, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(text) == 0 {
		delete(t.last, node)
		return
	}
	if t.last == nil {
		t.last = map[int32]tale{}
	}
	t.last[node] = tale{text, now}
}

// current returns what some nodes have told within beatWithin, and forgets the others.
func (t *tales) current(nodes []int32, now time.Time) (texts [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, last := range t.last {
		if now.Sub(last.at) > beatWithin || !slices.Contains(nodes, node) {
			delete(t.last, node)
			continue
		}
		texts = append(texts, last.text)
	}
	return texts
}

// size returns how many nodes the cluster has, as of at most sizeFor ago.
func (c *cluster) size(now time.Time) int {
	c.tales.mu.Lock()
	defer c.tales.mu.Unlock()
	if now.Sub(c.tales.sized) > sizeFor {
		_, c.tales.size = c.store.engine.members()
		c.tales.sized = now
	}
	return c.tales.size
}

// hear records what other nodes tell.
func (c *cluster) hear(message *nats.Msg) {
	node, err := strconv.ParseInt(strings.TrimPrefix(message.Subject, tellSubject+"."), 10, 32)
	if err == nil && int32(node) != c.options.Node {
		c.tales.take(int32(node), message.Data, time.Now())
	}
}

// Trade tells the other nodes something of at most 64 KiB, in the place of what this node told before, and returns what each node
// that is alive has told last, within 3 s; of a node that tells nothing, nil, the others hear nothing. It may be lost. Trade fails
// on a node that does not hear of a majority. A store without a cluster has no other nodes.
func (s *Store) Trade(_ context.Context, tell []byte) (others [][]byte, err error) {
	c := s.cluster
	if c == nil {
		return nil, nil
	}
	if len(tell) > maxTell {
		return nil, fmt.Errorf("what node %d tells has %d bytes: want at most %d", c.options.Node, len(tell), maxTell)
	}
	if err := s.conn.Publish(tellSubject+"."+strconv.Itoa(int(c.options.Node)), tell); err != nil {
		return nil, s.failure(err)
	}
	alive := c.Alive()
	if size := c.size(time.Now()); len(alive) < topic.Majority(size) {
		return nil, fmt.Errorf("node %d hears of %d of %d nodes, itself included", c.options.Node, len(alive), size)
	}
	return c.tales.current(alive, time.Now()), nil
}
