package broker

import (
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
