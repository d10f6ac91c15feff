package topic

import (
	"context"
	"slices"

	"github.com/sluice-project/sluice/lifecycle"
)

// awaitLeaders waits a while until all partitions of an import have leaders, so that
// clients that come now find them.
func (m *Import) awaitLeaders(ctx context.Context, record importRecord) {
	ctx, cancel := context.WithTimeout(ctx, leadersWait)
	defer cancel()
	led := func(name string) bool {
		item, err := m.store.Meta().Get(ctx, topicsPrefix+name)
		if err != nil {
			return false
		}
		stored, err := readTopicRecord(item)
		return err == nil && !slices.ContainsFunc(stored.Partitions, func(p partitionRecord) bool { return p.Leader == 0 })
	}
	for _, topic := range record.Topics {
		for !led(topic.Name) && lifecycle.Sleep(ctx, nil, leadersLook) {
		}
	}
}
