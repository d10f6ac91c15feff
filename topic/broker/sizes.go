package broker

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/sluice-project/sluice/topic"
)

// Sizes are the sizes of partitions in bytes, by topic and number.
type Sizes map[string]map[int32]int64

// SizesElsewhere returns the sizes of the partitions that other nodes lead, as far as these
// answer. A replica is about as large as its leader's.
func (b *Broker) SizesElsewhere(ctx context.Context) Sizes {
	all := Sizes{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, node := range b.Alive() {
		if node == b.Node() {
			continue
		}
		asking.Go(func() {
			answer, err := b.askLeader(ctx, &otherLeader{node: node}, leaderRequest{Sizes: true})
			if err != nil {
				b.log.Debug("sizes of partitions not known", "node", node, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for name, sizes := range answer.Sizes {
				if all[name] == nil {
					all[name] = map[int32]int64{}
				}
				maps.Copy(all[name], sizes)
			}
		})
	}
	asking.Wait()
	return all
}

// sizesHere returns the sizes of the partitions that this broker leads and can read.
func (b *Broker) sizesHere(ctx context.Context) Sizes {
	sizes := Sizes{}
	for _, p := range b.partitions() {
		if p.Ready() != nil {
			continue
		}
		bytes, err := p.Bytes(ctx)
		if err != nil {
			continue
		}
		name := p.topic.name
		if sizes[name] == nil {
			sizes[name] = map[int32]int64{}
		}
		sizes[name][p.number] = bytes
	}
	return sizes
}

// Volume returns the size of the disk that the records are on, and how many bytes can be
// added; errors.ErrUnsupported if the store does not know.
func (b *Broker) Volume() (total, free int64, err error) {
	if store, ok := b.store.(topic.Volume); ok {
		return store.Volume()
	}
	return 0, 0, errors.ErrUnsupported
}
