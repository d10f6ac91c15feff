package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Offsets of a transaction are kept with the transaction until its outcome is decided: see
// package txn. The group decides who may add them, and gets those of committed ones.

// Coordinates reports whether this node owns the slot of a group, or of a transactional
// id: they have the same slots.
func (gs *Groups) Coordinates(name string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return !gs.closed && gs.slots[SlotOf(name)].owner != nil
}

// MayCommit returns an error if a member may not add offsets to a transaction, and else
// the guard for adding them: the group has begun no other generation. A producer that
// gives no member and generation -1 always may. Errors: those of Commit.
func (gs *Groups) MayCommit(r MemberIdentity) (guard topic.Guard, err error) {
	anonymous := r.Generation < 0 && r.Member == "" && r.Instance == ""
	err = gs.with(r.Group, anonymous, func(c *coordinator, now time.Time) error {
		if c.unsure {
			return ErrCoordinatorUnavailable
		}
		guard = topic.Guard{Key: GroupKey(r.Group), Revision: c.revision}
		if anonymous {
			return nil
		}
		if cs := c.group.consumers; cs != nil {
			err := cs.checkEpoch(r)
			if errors.Is(err, ErrStaleEpoch) { // the request knows no such error
				err = fmt.Errorf("%w: %w", ErrIllegalGeneration, err)
			}
			return err
		}
		m, err := c.group.checkGeneration(r)
		if err == nil {
			m.touch(now)
		}
		return err
	})
	return guard, orIllegalGeneration(err)
}

// CommitDecided commits the offsets of a transaction, unless another node has done so:
// then decided returns false. The answer is that of Commit.
func (gs *Groups) CommitDecided(r CommitRequest, decided func() (bool, error)) *Awaited[[]error] {
	var answer *Awaited[[]error]
	err := gs.with(r.Group, true, func(c *coordinator, now time.Time) error {
		// With the lock: a later commit of the group comes after this one.
		is, err := decided()
		if err == nil && is {
			answer, err = c.commit(now, r)
		}
		return err
	})
	if err != nil || answer == nil {
		return settled[[]error](nil, err)
	}
	return answer
}
