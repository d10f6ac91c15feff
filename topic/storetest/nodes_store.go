package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// NodeStore is the topic.Store and the topic.Cluster of one node of [Nodes].
type NodeStore struct {
	nodes *Nodes
	id    int32
	gone  chan struct{} // closed when it is dead

	// Nodes.mu guards all fields below.

	dead, cut, left, lagging, behind bool
	unheard                          []int32 // nodes whose heartbeats it misses
	// seen is the last state that a node saw before it was cut off.
	seen map[string]seenLog
	// items is the metadata after the first applied changes.
	items          map[string]topic.Item
	applied        int
	followed       uint64 // the revision up to which its broker follows it
	metaWatches    []*memoryWatch
	clusterWatches []*func()
	answer         func(ctx context.Context, request []byte) []byte

	held    chan struct{} // closed by Release
	delayed bool
	late    []*lateAppend
	appends failure
	puts    failure
}

// failure makes operations fail.
type failure struct {
	err    error
	prefix string // of the names that it applies to
	stored bool   // the operation happens nevertheless
}

func (f failure) of(name string) error {
	if f.err == nil || !strings.HasPrefix(name, f.prefix) {
		return nil
	}
	return f.err
}

// seenLog is the state of a log that a node saw before it was cut off.
type seenLog struct {
	log   *nodesLog
	last  uint64
	leads bool
}

// errNoLeader reports that a log has no leader.
var errNoLeader = errors.New("log has no leader")

// Hold delays the acknowledgements of the node's appends, which are stored already, until
// Release.
func (s *NodeStore) Hold() {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	if s.held == nil {
		s.held = make(chan struct{})
	}
}

// Delay delays the node's appends: they reach their logs at Release, whatever has happened to
// the node and the logs. An append without an answer in time fails with topic.ErrUncertain.
func (s *NodeStore) Delay() {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.delayed = true
}

// Release ends Hold and Delay.
func (s *NodeStore) Release() { s.ReleaseSome(func(topic.Entry) bool { return true }) }

// ReleaseSome is Release, but loses the delayed appends for which arrive returns false.
func (s *NodeStore) ReleaseSome(arrive func(topic.Entry) bool) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	if s.held != nil {
		close(s.held)
		s.held = nil
	}
	for _, a := range s.late {
		if arrive(a.entry) {
			a.arrived <- s.nodes.store(a.log, a.entry)
		}
	}
	s.delayed, s.late = false, nil
}

// FailAppends makes each append of the node fail, until it is called with nil. With stored
// the entries are written nevertheless, as with topic.ErrUncertain.
func (s *NodeStore) FailAppends(err error, stored bool) { s.FailAppendsTo("", err, stored) }

// FailAppendsTo is FailAppends for the logs whose name begins with prefix.
func (s *NodeStore) FailAppendsTo(prefix string, err error, stored bool) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.appends = failure{err, prefix, stored}
}

// FailPuts makes each write of the node to keys with a prefix fail, as FailAppends does
// appends.
func (s *NodeStore) FailPuts(prefix string, err error, stored bool) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.puts = failure{err, prefix, stored}
}

// Lag keeps other nodes' changes of the metadata from the node, except as a write of its own
// or a Sync requires. With false it catches up.
func (s *NodeStore) Lag(lagging bool) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.lagging = lagging
	if !lagging && !s.cut {
		s.catchUp()
	}
}

// Behind makes the node lack entries of each log: it is not current and cannot lead.
func (s *NodeStore) Behind(behind bool) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.behind = behind
}

// Unheard makes the node count the others given, and only them, as dead.
func (s *NodeStore) Unheard(others ...int32) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.unheard = others
	s.nodes.changed()
}

// Logs implements [topic.Lister].
func (s *NodeStore) Logs(ctx context.Context) ([]string, error) {
	s.nodes.mu.Lock()
	writes, dead := s.writes(), s.dead
	s.nodes.mu.Unlock()
	switch {
	case dead:
		return nil, topic.ErrClosed
	case !writes:
		return nil, s.unanswered(ctx)
	}
	return s.nodes.Logs(), nil
}

// Meta implements [topic.Store].
func (s *NodeStore) Meta() topic.Meta { return nodeMeta{s} }

// Cluster implements [topic.Store].
func (s *NodeStore) Cluster() topic.Cluster { return s }

// Close implements [topic.Store]. It kills the node.
func (s *NodeStore) Close() error {
	s.nodes.mu.Lock()
	current := s.nodes.stores[s.id] == s
	s.nodes.mu.Unlock()
	if current {
		s.nodes.Kill(s.id)
	}
	return nil
}

// unanswered waits as a call without an answer does.
func (s *NodeStore) unanswered(ctx context.Context) error {
	s.nodes.mu.Lock()
	wait := s.nodes.unanswered
	s.nodes.mu.Unlock()
	select {
	case <-time.After(wait):
		return topic.ErrUncertain
	case <-s.gone:
		return topic.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writes reports whether the node can write metadata, and make and delete logs.
func (s *NodeStore) writes() bool { return !s.cut && s.nodes.majority(s.nodes.members) }

// Node implements [topic.Cluster].
func (s *NodeStore) Node() int32 { return s.id }

// Alone implements [topic.Cluster].
func (s *NodeStore) Alone() bool { return false }

// Alive implements [topic.Cluster].
func (s *NodeStore) Alive() []int32 {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	if s.cut || s.dead {
		return []int32{s.id}
	}
	return slices.DeleteFunc(s.nodes.those(s.nodes.members), func(node int32) bool {
		return node != s.id && (s.nodes.stores[node].left || slices.Contains(s.unheard, node))
	})
}

// Leads implements [topic.Cluster].
func (s *NodeStore) Leads(log string) bool {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	l := s.nodes.logs[log]
	switch {
	case s.dead:
		return false
	case s.cut:
		return s.seen[log].leads
	}
	return l != nil && l.leader == s.id
}

// Watch implements [topic.Cluster].
func (s *NodeStore) Watch(signal func()) (cancel func()) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.clusterWatches = append(s.clusterWatches, &signal)
	return func() {
		s.nodes.mu.Lock()
		defer s.nodes.mu.Unlock()
		s.clusterWatches = slices.DeleteFunc(s.clusterWatches, func(other *func()) bool { return other == &signal })
	}
}

// Followed implements [topic.Cluster].
func (s *NodeStore) Followed(revision uint64) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.followed = revision
}

// AwaitFollowed implements [topic.Cluster].
func (s *NodeStore) AwaitFollowed(ctx context.Context, revision uint64) error {
	behind := func(node int32) bool {
		s.nodes.mu.Lock()
		defer s.nodes.mu.Unlock()
		other := s.nodes.stores[node]
		return node != s.id && other != nil && other.followed > 0 && other.followed < revision
	}
	for slices.ContainsFunc(s.Alive(), behind) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Replicas implements [topic.Cluster].
func (s *NodeStore) Replicas(ctx context.Context, name string) (topic.Replicas, error) {
	s.nodes.mu.Lock()
	log := s.nodes.logs[name]
	switch {
	case s.dead:
		s.nodes.mu.Unlock()
		return topic.Replicas{}, topic.ErrClosed
	case s.cut || log != nil && log.leader == 0:
		s.nodes.mu.Unlock()
		if err := s.unanswered(ctx); !errors.Is(err, topic.ErrUncertain) {
			return topic.Replicas{}, err
		}
		return topic.Replicas{}, fmt.Errorf("%w: %s", errNoLeader, name)
	}
	defer s.nodes.mu.Unlock()
	if log == nil {
		return topic.Replicas{}, topic.ErrNoLog
	}
	nodes := slices.Sorted(slices.Values(log.nodes))
	current := slices.DeleteFunc(s.nodes.those(nodes), func(node int32) bool { return s.nodes.stores[node].behind })
	return topic.Replicas{Leader: log.leader, Nodes: nodes, Current: current, Moving: log.joining != nil}, nil
}

// Place implements [topic.Cluster]. Each call takes one step: nodes start to copy the log, then
// they have it, then other nodes drop it.
func (s *NodeStore) Place(ctx context.Context, name string, nodes []int32) (placed bool, err error) {
	s.nodes.mu.Lock()
	log := s.nodes.logs[name]
	switch {
	case s.dead:
		s.nodes.mu.Unlock()
		return false, topic.ErrClosed
	case log == nil:
		s.nodes.mu.Unlock()
		return false, topic.ErrNoLog
	case !s.writes() || log.leader == 0:
		s.nodes.mu.Unlock()
		return false, s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	defer s.nodes.changed()
	return log.place(nodes), nil
}

// Resign implements [topic.Cluster].
func (s *NodeStore) Resign(ctx context.Context, name string, to int32) error {
	s.nodes.mu.Lock()
	log := s.nodes.logs[name]
	switch {
	case s.dead:
		s.nodes.mu.Unlock()
		return topic.ErrClosed
	case log == nil:
		s.nodes.mu.Unlock()
		return topic.ErrNoLog
	case s.cut:
		s.nodes.mu.Unlock()
		return s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	if log.leader != s.id {
		return nil
	}
	return s.transfer(log, to)
}

// transfer transfers the leadership of a log.
func (s *NodeStore) transfer(log *nodesLog, to int32) error {
	if to == s.id || !s.nodes.electable(log, to) {
		to = 0
		for _, node := range log.nodes {
			if node != s.id && s.nodes.electable(log, node) {
				to = node
				break
			}
		}
	}
	if to == 0 {
		return fmt.Errorf("no other node can lead %s", log.name)
	}
	log.leader = to
	s.nodes.changed()
	return nil
}

// Leave implements [topic.Cluster].
func (s *NodeStore) Leave(ctx context.Context) error {
	s.nodes.mu.Lock()
	if s.cut {
		s.nodes.mu.Unlock()
		return s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	if s.dead {
		return topic.ErrClosed
	}
	s.left = true
	var failed []error
	for _, log := range s.nodes.logs {
		if log.leader == s.id {
			failed = append(failed, s.transfer(log, 0))
		}
	}
	s.nodes.changed()
	return errors.Join(failed...)
}

// Ask implements [topic.Cluster].
func (s *NodeStore) Ask(ctx context.Context, node int32, request []byte) ([]byte, error) {
	s.nodes.mu.Lock()
	var answer func(context.Context, []byte) []byte
	if to := s.nodes.stores[node]; to != nil && s.nodes.up(node) && s.nodes.up(s.id) {
		answer = to.answer
	}
	s.nodes.mu.Unlock()
	if answer == nil {
		return nil, fmt.Errorf("%w: node %d", topic.ErrNoAnswer, node)
	}
	return answer(ctx, slices.Clone(request)), nil
}

// Answer implements [topic.Cluster].
func (s *NodeStore) Answer(with func(ctx context.Context, request []byte) []byte) (cancel func(), err error) {
	set := func(with func(context.Context, []byte) []byte) {
		s.nodes.mu.Lock()
		defer s.nodes.mu.Unlock()
		s.answer = with
	}
	set(with)
	return func() { set(nil) }, nil
}

// Remove implements [topic.Cluster].
func (s *NodeStore) Remove(ctx context.Context, node int32) error {
	s.nodes.mu.Lock()
	if !s.writes() {
		s.nodes.mu.Unlock()
		return s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	if s.nodes.up(node) {
		return fmt.Errorf("node %d is alive", node)
	}
	s.nodes.members = slices.DeleteFunc(s.nodes.members, func(other int32) bool { return other == node })
	delete(s.nodes.stores, node)
	s.nodes.changed()
	return nil
}
