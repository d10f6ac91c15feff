package broker

import (
	"context"

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
