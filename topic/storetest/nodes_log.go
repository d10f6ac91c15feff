package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-project/sluice/topic"
)

// nodesLog is a log of Nodes: the entries that a majority of its replicas has.
type nodesLog struct {
	name    string
	nodes   []int32 // that keep it, the preferred leader first
	joining []int32 // that copy it, and have it at the next step
	leader  int32
	first   uint64
	entries []topic.Entry // from first on
	grown   chan struct{} // closed, and replaced, when something is appended
	deleted bool
}

func (l *nodesLog) last() uint64 { return l.first + uint64(len(l.entries)) - 1 }

func (l *nodesLog) tell() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// place takes one step towards keeping the log on exactly these nodes.
func (l *nodesLog) place(nodes []int32) (placed bool) {
	if l.joining != nil {
		l.nodes = append(l.nodes, l.joining...)
		l.joining = nil
		return false
	}
	for _, node := range nodes {
		if !slices.Contains(l.nodes, node) {
			l.joining = append(l.joining, node)
		}
	}
	if l.joining != nil {
		return false
	}
	if len(l.nodes) == len(nodes) {
		l.nodes = slices.Clone(nodes)
		return true
	}
	l.nodes = slices.Clone(nodes)
	if !slices.Contains(nodes, l.leader) {
		l.leader = nodes[0]
	}
	return false
}

// store appends an entry that has reached the log's leader.
func (n *Nodes) store(log *nodesLog, entry topic.Entry) error {
	switch {
	case log.deleted:
		return topic.ErrNoLog
	case log.leader == 0 || !n.majority(log.nodes):
		return topic.ErrUncertain
	case entry.Sequence != log.last()+1:
		return topic.ErrFenced
	}
	entry.Data, entry.Sum = slices.Clone(entry.Data), 0
	log.entries = append(log.entries, entry)
	log.tell()
	return nil
}

// OpenLog implements [topic.Store].
func (s *NodeStore) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	return s.MakeLog(ctx, name, nodes, 1)
}

// MakeLog implements [topic.Store].
func (s *NodeStore) MakeLog(ctx context.Context, name string, nodes []int32, first uint64) (topic.Log, error) {
	s.nodes.mu.Lock()
	log := s.nodes.logs[name]
	if seen, ok := s.seen[name]; s.cut && ok {
		log = seen.log
	}
	switch {
	case s.dead:
		s.nodes.mu.Unlock()
		return nil, topic.ErrClosed
	case log == nil && !s.writes():
		s.nodes.mu.Unlock()
		return nil, s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	if log == nil {
		if len(nodes) == 0 {
			return nil, topic.ErrNoLog
		}
		log = &nodesLog{name: name, nodes: slices.Clone(nodes), first: first, grown: make(chan struct{})}
		if log.leader = s.nodes.next(log); log.leader == 0 {
			return nil, fmt.Errorf("log %s: too few of the nodes %v are alive", name, nodes)
		}
		if s.nodes.electable(log, s.nodes.leadsNew) {
			log.leader = s.nodes.leadsNew
		}
		s.nodes.logs[name] = log
		s.nodes.changed()
	}
	return &nodeLog{store: s, log: log}, nil
}

// DeleteLog implements [topic.Store].
func (s *NodeStore) DeleteLog(ctx context.Context, name string) error {
	s.nodes.mu.Lock()
	if s.dead {
		s.nodes.mu.Unlock()
		return topic.ErrClosed
	}
	if !s.writes() {
		s.nodes.mu.Unlock()
		return s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	if log := s.nodes.logs[name]; log != nil {
		log.deleted = true
		log.tell()
		delete(s.nodes.logs, name)
		s.nodes.changed()
	}
	return nil
}

// nodeLog is a log as one node sees it.
type nodeLog struct {
	store *NodeStore
	log   *nodesLog
	dones dones
}

// lateAppend is an append that Delay has delayed.
type lateAppend struct {
	log     *nodesLog
	entry   topic.Entry
	arrived chan error // with a buffer of one
}

// Append implements [topic.Log].
func (l *nodeLog) Append(entry topic.Entry, done func(error)) {
	s := l.store
	s.nodes.mu.Lock()
	held := s.held
	fail := s.appends.of(l.log.name)
	var late chan error
	var err error
	switch {
	case s.dead:
		err = topic.ErrClosed
	case fail != nil && !s.appends.stored:
		err = fail
	case s.cut:
		late = make(chan error) // no answer ever comes
	case s.delayed:
		entry.Data, entry.Sum = slices.Clone(entry.Data), 0
		late = make(chan error, 1)
		s.late = append(s.late, &lateAppend{l.log, entry, late})
	default:
		if err = s.nodes.store(l.log, entry); errors.Is(err, topic.ErrUncertain) {
			late = make(chan error)
		} else if err == nil {
			err = fail
		}
	}
	l.dones.add(func() { done(l.outcome(held, late, err)) })
	s.nodes.mu.Unlock()
}

// outcome waits for the outcome of an append.
func (l *nodeLog) outcome(held chan struct{}, late chan error, err error) error {
	s := l.store
	if late != nil {
		s.nodes.mu.Lock()
		wait := s.nodes.unanswered
		s.nodes.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		select {
		case err = <-late:
		case <-s.gone:
			return topic.ErrClosed
		case <-ctx.Done():
			return topic.ErrUncertain
		}
	}
	if held != nil {
		select {
		case <-held:
		case <-s.gone:
			return topic.ErrClosed
		}
	}
	return err
}

// Read implements [topic.Log]. It reads the node's own replica.
func (l *nodeLog) Read(_ context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	l.store.nodes.mu.Lock()
	defer l.store.nodes.mu.Unlock()
	_, last, err := l.ends()
	if err != nil {
		return nil, err
	}
	if from = max(from, l.log.first); from > last {
		return nil, nil
	}
	var read []topic.Entry
	size := 0
	for _, entry := range l.log.entries[from-l.log.first : last+1-l.log.first] {
		if size += len(entry.Data); len(read) > 0 && size > maxBytes {
			break
		}
		read = append(read, entry)
	}
	return read, nil
}

// ends returns the ends that the node sees. The caller holds Nodes.mu.
func (l *nodeLog) ends() (first, last uint64, err error) {
	switch {
	case l.store.dead:
		return 0, 0, topic.ErrClosed
	case l.store.cut:
		last = max(l.store.seen[l.log.name].last, l.log.first-1)
		return l.log.first, last, nil
	case l.log.deleted:
		return 0, 0, topic.ErrNoLog
	}
	return l.log.first, l.log.last(), nil
}

// Trim implements [topic.Log].
func (l *nodeLog) Trim(ctx context.Context, before uint64) error {
	l.store.nodes.mu.Lock()
	_, last, err := l.ends()
	if err == nil && (l.store.cut || l.log.leader == 0) {
		l.store.nodes.mu.Unlock()
		return l.store.unanswered(ctx)
	}
	defer l.store.nodes.mu.Unlock()
	if err != nil {
		return err
	}
	if before = min(before, last+1); before > l.log.first {
		l.log.entries = slices.Clone(l.log.entries[before-l.log.first:])
		l.log.first = before
	}
	return nil
}

// Ends implements [topic.Log]. The leader answers, or a node that still counts itself as leader.
func (l *nodeLog) Ends(ctx context.Context) (first, last uint64, err error) {
	l.store.nodes.mu.Lock()
	if first, last, err = l.ends(); err != nil || l.log.leader != 0 || l.store.cut && l.store.seen[l.log.name].leads {
		l.store.nodes.mu.Unlock()
		return first, last, err
	}
	l.store.nodes.mu.Unlock()
	return 0, 0, l.store.unanswered(ctx)
}

// Wait implements [topic.Log].
func (l *nodeLog) Wait(ctx context.Context, sequence uint64) error {
	for {
		l.store.nodes.mu.Lock()
		_, last, err := l.ends()
		grown := l.log.grown
		l.store.nodes.mu.Unlock()
		switch {
		case err != nil:
			return err
		case last >= sequence:
			return nil
		}
		select {
		case <-grown:
		case <-l.store.gone:
			return topic.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
