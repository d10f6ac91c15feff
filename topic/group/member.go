package group

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Join adds a member to a group, or to its next generation. The answer comes when all
// members have joined, or their time has run out.
//
// Errors: ErrInvalidGroup, ErrInvalidSession, ErrInvalidGroupRequest,
// ErrGroupTooLarge, ErrGroupFull, ErrTooManyGroups, ErrInconsistentProtocol,
// ErrMemberIDRequired (with an id), ErrUnknownMember, ErrFencedInstance,
// ErrCoordinatorLoading, ErrCoordinatorUnavailable, ErrClosed.
func (gs *Groups) Join(r JoinRequest) *Awaited[JoinResult] {
	var answer *Awaited[JoinResult]
	err := gs.move(r.Group, r.Member == "", func(g *group, now time.Time) error {
		answer = g.join(now, r)
		return nil
	})
	if err != nil {
		return settled(JoinResult{Member: r.Member, Generation: -1}, orUnknownMember(err))
	}
	return answer
}

// Sync gives a member its assignment. The answer comes when the leader's request
// has arrived and is durable.
//
// Errors: ErrUnknownMember, ErrFencedInstance, ErrIllegalGeneration,
// ErrInconsistentProtocol, ErrRebalanceInProgress, ErrGroupTooLarge,
// ErrInvalidGroup, ErrCoordinatorLoading, ErrCoordinatorUnavailable, ErrClosed.
func (gs *Groups) Sync(r SyncRequest) *Awaited[SyncResult] {
	var answer *Awaited[SyncResult]
	err := gs.move(r.Group, false, func(g *group, now time.Time) error {
		answer = g.syncMember(now, r)
		return nil
	})
	if err != nil {
		return settled(SyncResult{}, orUnknownMember(err))
	}
	return answer
}

// Heartbeat extends a member's session. ErrRebalanceInProgress means that the session
// was extended, and that the member must join again.
//
// Other errors: ErrUnknownMember, ErrFencedInstance, ErrIllegalGeneration,
// ErrInvalidGroup, ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) Heartbeat(r MemberIdentity) error {
	return orUnknownMember(gs.with(r.Group, false, func(c *coordinator, now time.Time) error {
		err := c.group.heartbeat(now, r)
		if errors.Is(err, ErrRebalanceInProgress) {
			c.arm(now) // the member has to join again in time
		}
		return err
	}))
}

// ConsumerHeartbeat lets a member of the consumer protocol join, stay and leave. The answer comes when all that it
// tells is durable.
//
// Errors: ErrUnknownMember, ErrFencedEpoch, ErrFencedInstance, ErrUnreleasedInstance,
// ErrUnknownAssignor, ErrInvalidPattern, ErrOtherProtocol, ErrInvalidGroup, ErrInvalidGroupRequest,
// ErrGroupFull, ErrTooManyGroups, ErrGroupTooLarge, ErrCoordinatorLoading,
// ErrCoordinatorUnavailable, ErrClosed.
func (gs *Groups) ConsumerHeartbeat(r ConsumerHeartbeat) *Awaited[ConsumerResult] {
	if err := r.validate(); err != nil {
		return settled(ConsumerResult{}, err)
	}
	var answer *Awaited[ConsumerResult]
	err := gs.move(r.Group, r.Epoch == JoinEpoch, func(g *group, now time.Time) error {
		answer = g.consume(now, r)
		return nil
	})
	if err != nil {
		return settled(ConsumerResult{}, orUnknownMember(err))
	}
	return answer
}

// CheckEpoch returns an error if a member of the consumer protocol may not read the offsets of its group:
// ErrUnknownMember, ErrStaleEpoch; ErrIllegalGeneration for a member of the classic one. In classic groups, and
// those that do not exist, every client may. Other errors: ErrInvalidGroup, ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) CheckEpoch(r MemberIdentity) error {
	err := gs.with(r.Group, false, func(c *coordinator, _ time.Time) error {
		if c.group.consumers == nil {
			return nil
		}
		return c.group.consumers.checkEpoch(r)
	})
	if errors.Is(err, ErrNoGroup) {
		return nil
	}
	return err
}

// Leave removes members from a group: by their ids, by instance ids, or by both. It
// returns an error for each member that cannot be removed (ErrUnknownMember,
// ErrFencedInstance), or one error for all: ErrInvalidGroup, ErrCoordinatorLoading,
// ErrClosed.
func (gs *Groups) Leave(name string, members []MemberIdentity) ([]error, error) {
	errs := make([]error, len(members))
	err := gs.move(name, false, func(g *group, now time.Time) error {
		for i, m := range members {
			errs[i] = g.leave(now, m)
		}
		return nil
	})
	if errors.Is(err, ErrNoGroup) {
		return slices.Repeat([]error{orUnknownMember(err)}, len(members)), nil
	}
	return errs, err
}

// Commit commits offsets. The answer comes when they are durable: an error for
// each offset that is not, in the order of the request
// (ErrOffsetMetadataTooLarge, ErrInvalidGroupRequest,
// ErrCoordinatorUnavailable), or one for all: ErrUnknownMember,
// ErrFencedInstance, ErrIllegalGeneration, ErrRebalanceInProgress,
// ErrInvalidGroup, ErrTooManyGroups, ErrCoordinatorLoading,
// ErrCoordinatorUnavailable, ErrClosed.
func (gs *Groups) Commit(r CommitRequest) *Awaited[[]error] {
	var answer *Awaited[[]error]
	err := gs.with(r.Group, r.Generation < 0 && r.Member == "", func(c *coordinator, now time.Time) (err error) {
		if err := c.group.mayCommit(now, r.MemberIdentity); err != nil {
			return err
		}
		answer, err = c.commit(now, r)
		return err
	})
	if err != nil {
		return settled[[]error](nil, orIllegalGeneration(err))
	}
	return answer
}

// orIllegalGeneration replaces ErrNoGroup by the error for a commit.
func orIllegalGeneration(err error) error {
	if errors.Is(err, ErrNoGroup) {
		return fmt.Errorf("%w: %w", ErrIllegalGeneration, err)
	}
	return err
}

func (c *coordinator) commit(now time.Time, r CommitRequest) (*Awaited[[]error], error) {
	if c.waiting != nil && len(c.waiting.commits) >= maxWaitingCommits {
		return nil, fmt.Errorf("%w: %d commits of the group wait", ErrCoordinatorUnavailable, maxWaitingCommits)
	}
	changes := newWaitingCommit(len(r.Offsets))
	for i, o := range r.Offsets {
		set, err := r.committed(now, o, c.group.config)
		changes.topics[i], changes.errs[i] = o.Topic, err
		if err == nil {
			c.change(o.Topic, map[int32]offsetChange{o.Partition: {set: set}})
		}
	}
	return c.await(changes), nil
}

func newWaitingCommit(count int) *waitingCommit {
	return &waitingCommit{topics: make([]string, count), errs: make([]error, count), answer: newAwaited[[]error]()}
}

// await adds a commit to the next write, unless nothing of it is to be written.
func (c *coordinator) await(w *waitingCommit) *Awaited[[]error] {
	for _, err := range w.errs {
		if err == nil {
			next := c.nextWrite()
			next.commits = append(next.commits, w)
			return w.answer
		}
	}
	w.answer.settle(w.errs, nil)
	return w.answer
}
