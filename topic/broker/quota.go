package broker

import (
	"context"
	"fmt"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// inTurn calls f with the condition under which it may write, see catalog.InTurn; none if the owner has no quota, or f only checks.
// The admin lock is held, so others are nodes only.
func (b *Broker) inTurn(ctx context.Context, owner string, dryRun bool, f func(turn []topic.Guard) error) error {
	if dryRun || b.quotas(owner) == (topic.Quota{}) {
		return f(nil)
	}
	return catalog.InTurn(ctx, b.store.Meta(), b.unmoved, b.moving.serves, func(turn topic.Guard) error { return f([]topic.Guard{turn}) })
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
