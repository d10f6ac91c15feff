package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// groupTopics are the topics as consumer groups see them.
type groupTopics struct{ broker *Broker }

// Lookup returns the topic of that name; the partitions of a view are its source's.
func (t groupTopics) Lookup(name string) (assign.Topic, bool) {
	found, err := t.broker.Topic(name)
	if err != nil {
		return assign.Topic{}, false
	}
	return assign.Topic{ID: found.ID(), Partitions: int32(len(found.Partitions()))}, true
}

// Names returns the names of all topics.
func (t groupTopics) Names() []string {
	t.broker.mu.RLock()
	defer t.broker.mu.RUnlock()
	names := make([]string, 0, len(t.broker.topics))
	for name := range t.broker.topics {
		names = append(names, name)
	}
	return names
}

// MakesGroup reports whether a group does not exist, and this node may make it for an owner with a quota of groups: AdmitGroup comes
// first then.
func (b *Broker) MakesGroup(name, owner string) bool {
	return b.quotas(owner).Groups > 0 && b.groups.Lacks(name)
}

// AdmitGroup counts a group, which is about to be made, for its owner. Errors: group.ErrTooManyGroups beyond the quota,
// group.ErrCoordinatorUnavailable.
func (b *Broker) AdmitGroup(ctx context.Context, name, owner string) error {
	return b.groups.Admit(ctx, name, owner, b.quotas(owner).Groups)
}

// AtStart and AtEnd are times that stand for the ends of a partition.
const (
	AtStart = -2
	AtEnd   = -1
)

// Moved is a partition in which a group is moved.
type Moved struct {
	Partition int32
	// Old is the offset that the group has committed; -1 if it has none there.
	Old, New int64
}

// PlanReset returns where a group would go on in each partition of a topic if it was moved to a time, in milliseconds since the
// epoch, AtStart or AtEnd: at the first record of that time or later, else at the end. Any nodes may lead the partitions and
// coordinate the group. Errors: ErrNoTopic; group.ErrGroupNotEmpty; group.ErrNoGroup; group.ErrCoordinatorUnavailable; ErrNoAnswer if a partition
// has no leader, or a node does not answer; ErrRetry.
func (b *Broker) PlanReset(ctx context.Context, name, of string, at int64) ([]Moved, error) {
	t, err := b.Topic(of)
	if err != nil {
		return nil, err
	}
	offsets, err := b.offsetsAt(ctx, t, at)
	if err != nil {
		return nil, err
	}
	committed, err := b.reset(ctx, of, resetRequest{Group: name})
	if err != nil {
		return nil, err
	}
	var plan []Moved
	for _, p := range t.Partitions() {
		m := Moved{Partition: p.number, Old: -1}
		if old, known := committed[m.Partition]; known {
			m.Old = old
		}
		var known bool
		if m.New, known = offsets[m.Partition]; !known {
			return nil, fmt.Errorf("%w: another node begins to lead %s/%d", topic.ErrRetry, of, m.Partition)
		}
		plan = append(plan, m)
	}
	return plan, nil
}

// ResetGroup moves a group as PlanReset says, durably. Errors are those of PlanReset.
func (b *Broker) ResetGroup(ctx context.Context, name, of string, at int64) error {
	plan, err := b.PlanReset(ctx, name, of, at)
	if err != nil {
		return err
	}
	request := resetRequest{Group: name, Offsets: map[int32]int64{}}
	for _, m := range plan {
		request.Offsets[m.Partition] = m.New
	}
	_, err = b.reset(ctx, of, request)
	return err
}

// offsetsAt returns the offsets of a time in the partitions of a topic, as PlanReset has them.
func (b *Broker) offsetsAt(ctx context.Context, t *Topic, at int64) (map[int32]int64, error) {
	if t.source != nil {
		t = t.source
	}
	offsets, err := b.offsetsHere(ctx, t.name, at)
	if err != nil {
		return nil, err
	}
	leaders, err := b.otherLeaders(t.name)
	if err != nil {
		return nil, err
	}
	answers := make([]leaderAnswer, len(leaders))
	var asking errgroup.Group
	for i, leader := range leaders {
		asking.Go(func() (err error) {
			answers[i], err = b.askLeader(ctx, leader, leaderRequest{Topic: t.name, At: &at})
			return err
		})
	}
	err = asking.Wait()
	for _, answer := range answers {
		maps.Copy(offsets, answer.Offsets)
	}
	return offsets, err
}

// offsetsHere is offsetsAt for the partitions that this broker leads.
func (b *Broker) offsetsHere(ctx context.Context, name string, at int64) (map[int32]int64, error) {
	t, err := b.Topic(name)
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for _, p := range t.Partitions() {
		if p.Ready() != nil {
			continue
		}
		if offsets[p.number], err = p.place(ctx, at); err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// place returns the offset of a time, as PlanReset has it.
func (p *Partition) place(ctx context.Context, at int64) (int64, error) {
	switch ends := p.Ends(); at {
	case AtStart:
		return ends.Start, nil
	case AtEnd:
		return ends.HighWatermark, nil
	}
	offset, _, err := p.OffsetAt(ctx, at)
	if err == nil && offset < 0 { // no record is that late
		offset = p.Ends().HighWatermark
	}
	return offset, err
}

// resetRequest asks the coordinator of a group without members for the offsets that it has committed in a topic, or to commit
// Offsets first.
type resetRequest struct {
	Group   string          `json:"group"`
	Offsets map[int32]int64 `json:"offsets,omitempty"`
}

// reset has the coordinator of a group answer a request.
func (b *Broker) reset(ctx context.Context, of string, r resetRequest) (map[int32]int64, error) {
	node, err := b.groups.Coordinator(ctx, r.Group)
	if err != nil {
		return nil, err
	}
	if node == b.Node() {
		return b.resetHere(ctx, of, &r)
	}
	answer, err := b.askLeader(ctx, &otherLeader{node: node}, leaderRequest{Topic: of, Reset: &r})
	for _, known := range []error{group.ErrNoGroup, group.ErrGroupNotEmpty} { // which callers tell apart
		if details, is := strings.CutPrefix(answer.Error, known.Error()); is {
			return nil, fmt.Errorf("%w%s", known, details)
		}
	}
	return answer.Offsets, err
}

// resetHere is reset at the coordinator.
func (b *Broker) resetHere(ctx context.Context, of string, r *resetRequest) (map[int32]int64, error) {
	described, err := b.groups.Describe(r.Group)
	if err != nil {
		return nil, err
	}
	if described.State != group.Empty && described.State != group.Dead {
		return nil, fmt.Errorf("%w: its members (%d) would go on where they are; stop them first", group.ErrGroupNotEmpty, len(described.Members))
	}
	if len(r.Offsets) > 0 {
		commit := group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: r.Group, Generation: -1}}
		for partition, offset := range r.Offsets {
			commit.Offsets = append(commit.Offsets, group.OffsetCommit{Topic: of, Partition: partition, Offset: offset, Epoch: -1})
		}
		errs, err := b.groups.Commit(commit).Wait(ctx)
		if err := errors.Join(append(errs, err)...); err != nil {
			return nil, err
		}
	}
	stored, err := b.groups.Offsets(r.Group)
	offsets := map[int32]int64{}
	for partition, at := range stored[of] {
		offsets[partition] = at.Offset
	}
	return offsets, err
}
