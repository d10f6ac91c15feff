package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// A quota bounds what exists that an owner has created. Each node counts by itself, so two could create at the same time what
// only one may. Whoever creates something for an owner with a quota first takes a turn: a write of catalog.TurnKey. Then it reads all
// that was written before, counts, and creates on the condition that nobody has taken a turn since.

// inTurn calls f with the condition under which it may write; none if the owner has no quota, or f only checks. If another turn has
// begun in the meantime, f returns ErrConflict and is called again. The admin lock is held, so others are nodes only.
func (b *Broker) inTurn(ctx context.Context, owner string, dryRun bool, f func(turn []topic.Guard) error) error {
	if dryRun || b.quotas(owner) == (topic.Quota{}) {
		return f(nil)
	}
	for range mostTurns {
		turn, err := b.takeTurn(ctx)
		if err == nil {
			err = f([]topic.Guard{turn})
		}
		if !errors.Is(err, topic.ErrConflict) {
			return err
		}
		if err := cmp.Or(b.moving.serves(), b.store.Meta().Sync(ctx)); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: other nodes create topics for owners with quotas all the time; try again", topic.ErrConflict)
}

// mostTurns bounds the turns that a call takes. One passes only if another node makes progress in the meantime.
const mostTurns = 100

// takeTurn begins a turn; ErrConflict if another one has just begun.
func (b *Broker) takeTurn(ctx context.Context) (topic.Guard, error) {
	item, err := catalog.Get(ctx, b.store.Meta(), catalog.TurnKey)
	if err != nil {
		return topic.Guard{}, err
	}
	revision, err := b.store.Meta().Put(ctx, catalog.TurnKey, []byte("1"), item.Revision, b.unmoved()...)
	return topic.Guard{Key: catalog.TurnKey, Revision: revision}, err
}

// within returns an ErrQuota if an owner may not have so many more topics or partitions.
func (b *Broker) within(owner string, topics, partitions int) error {
	most := b.quotas(owner)
	if most == (topic.Quota{}) {
		return nil
	}
	hasTopics, hasPartitions := 0, 0
	for _, t := range b.Topics() {
		if t.owner != owner {
			continue
		}
		if hasTopics++; t.source == nil {
			hasPartitions += len(t.all())
		}
	}
	for _, of := range [...]struct {
		noun, quota     string
		has, more, most int
	}{
		{"topics", "max_topics", hasTopics, topics, most.Topics},
		{"partitions", "max_partitions", hasPartitions, partitions, most.Partitions},
	} {
		if of.most > 0 && of.more > 0 && of.has+of.more > of.most {
			return fmt.Errorf("%w: %s has %d %s, and %d more would exceed %s, %d: delete some, or have an admin raise it", topic.ErrQuota, owner, of.has, of.noun, of.more, of.quota, of.most)
		}
	}
	return nil
}
