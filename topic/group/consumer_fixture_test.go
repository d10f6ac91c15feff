package group_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// someTopics are topics that a test changes.
type someTopics struct {
	mu     sync.Mutex
	byName map[string]assign.Topic
}

func newTopics(partitions map[string]int32) *someTopics {
	s := &someTopics{byName: map[string]assign.Topic{}}
	for name, count := range partitions {
		s.set(name, count)
	}
	return s
}

// set creates a topic, or changes its number of partitions.
func (s *someTopics) set(name string, partitions int32) topic.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, there := s.byName[name]
	if !there {
		of.ID = topic.NewID()
	}
	of.Partitions = partitions
	s.byName[name] = of
	return of.ID
}

func (s *someTopics) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
}

func (s *someTopics) Lookup(name string) (assign.Topic, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, there := s.byName[name]
	return of, there
}

func (s *someTopics) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.byName)
}

func (s *someTopics) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.byName))
}

// startConsumers returns groups of members that subscribe to topics.
func startConsumers(t *testing.T, meta topic.Meta, topics group.Topics, config topic.GroupsConfig) *group.Groups {
	t.Helper()
	groups := group.New(meta, topic.Single{}, config, topics, nil)
	if err := groups.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopGroups(t, groups) })
	return groups
}

// modern is a client of the consumer protocol, controlled by the test. It reads what it is assigned until
// it has learnt of another assignment.
type modern struct {
	t      testing.TB
	groups *group.Groups
	group.ConsumerHeartbeat
	reads assign.Partitions // what it reads now
	told  assign.Partitions // what it was told to read
	tell  bool              // its next heartbeat tells everything
	// fenced counts how often it has lost everything.
	fenced int
	busy   bool // it goes on with what it reads, and does not yet say what it owns
}

func newModern(t testing.TB, groups *group.Groups, name string, topics ...string) *modern {
	return &modern{t: t, groups: groups, ConsumerHeartbeat: group.ConsumerHeartbeat{
		Group: "g", Member: name, Client: name, Host: "/here", Rebalance: 30 * time.Second, Topics: topics, Owned: assign.Partitions{},
	}}
}

// beat sends a heartbeat. A member that was told of another assignment has given up by then what it lost.
func (m *modern) beat() error {
	r := m.ConsumerHeartbeat
	if r.Epoch != group.JoinEpoch && !m.tell {
		r.Rebalance, r.Topics, r.Pattern, r.Instance = 0, nil, nil, ""
	}
	busy := m.busy && r.Epoch != group.JoinEpoch && !m.tell // after an error a client tells everything at once
	switch r.Owned = m.reads; {
	case busy:
		r.Owned = nil
	case r.Epoch == group.JoinEpoch:
		r.Owned = assign.Partitions{}
	}
	result, err := m.groups.ConsumerHeartbeat(r).Wait(m.t.Context())
	if err != nil {
		m.tell = true
		return err
	}
	m.tell = false
	m.Member, m.Epoch = result.Member, result.Epoch
	if result.Assigned != nil {
		m.told = result.Assigned
	}
	if !busy {
		m.reads = m.told
	}
	return nil
}

func (m *modern) mustBeat() {
	m.t.Helper()
	if err := m.beat(); err != nil {
		m.t.Fatalf("heartbeat of %s in epoch %d: %v", m.Member, m.Epoch, err)
	}
}

// leave sends one of the epochs with which a member leaves.
func (m *modern) leave(epoch int32) error {
	r := m.ConsumerHeartbeat
	r.Epoch = epoch
	_, err := m.groups.ConsumerHeartbeat(r).Wait(m.t.Context())
	return err
}

func (m *modern) owns() (string, assign.Partitions) { return m.Member, m.reads }
func (m *modern) subscribed() []string              { return m.Topics }
func (m *modern) moveTo(groups *group.Groups)       { m.groups = groups }
func (m *modern) quit()                             { _ = m.leave(group.LeaveEpoch) }

// turn sends a heartbeat.
func (m *modern) turn(busy, lost bool) {
	m.busy = busy
	before := *m
	err := m.beat()
	if lost && err == nil && before.Epoch != group.JoinEpoch {
		*m = before
		m.tell = true
		return
	}
	if errors.Is(err, group.ErrUnknownMember) || errors.Is(err, group.ErrFencedEpoch) {
		m.Epoch, m.reads, m.told = group.JoinEpoch, nil, nil
		m.fenced++
	}
}

// settle lets members send heartbeats until all have reached their targets.
func settle(t testing.TB, groups *group.Groups, members ...*modern) {
	t.Helper()
	for range 100 {
		for _, m := range members {
			m.mustBeat()
		}
		if d, err := groups.Describe("g"); err != nil || d.State == group.Stable {
			return
		}
	}
	t.Fatal("the members do not reach their targets")
}
