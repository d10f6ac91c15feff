package bulk

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// catalog knows the actions whose jobs are in flight, by the store's number.
type catalog struct {
	engine *Engine
	mu     sync.RWMutex
	known  map[uint64]*known
}

type known struct {
	spec       *Spec
	aggregates *Aggregates
}

// of returns what is known of an action; spec may be nil if it must be asked for.
func (c *catalog) of(ctx context.Context, number uint64, spec *Spec) (*known, error) {
	c.mu.RLock()
	k := c.known[number]
	c.mu.RUnlock()
	if k != nil {
		return k, nil
	}
	if spec == nil {
		actions, err := c.engine.store.Actions(ctx, ActionFilter{Number: number})
		if err != nil || len(actions) == 0 {
			return nil, err
		}
		spec = &actions[0].Spec
	}
	aggregates, err := ParseAggregates(spec.Aggregate, c.engine.custom)
	if err != nil {
		return nil, fmt.Errorf("action %q: %w", spec.ID, err)
	}
	k = &known{spec: spec, aggregates: aggregates}
	c.mu.Lock()
	c.known[number] = k
	c.mu.Unlock()
	return k, nil
}

// forget drops what is not needed for the actions of these ids.
func (c *catalog) forget(unfinished map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ uint64, k *known) bool { return !unfinished[k.spec.ID] })
}
