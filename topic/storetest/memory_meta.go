package storetest

import (
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/topic"
)

// memoryMeta is the Meta of a Memory.
type memoryMeta struct {
	mu       sync.Mutex
	items    map[string]topic.Item
	revision uint64
	watches  map[*memoryWatch]bool
}

// memoryWatch is a watch of the keys with a prefix.
type memoryWatch struct {
	prefix string
	signal func()
}

// Get implements [topic.Meta].
func (m *memoryMeta) Get(_ context.Context, key string) (topic.Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	if !ok {
		return topic.Item{}, topic.ErrNotFound
	}
	return item, nil
}

// Put implements [topic.Meta].
func (m *memoryMeta) Put(_ context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.items[key].Revision != revision || !m.hold(guards) {
		return 0, topic.ErrConflict
	}
	m.revision++
	m.items[key] = topic.Item{Key: key, Value: slices.Clone(value), Revision: m.revision}
	m.notify(key)
	return m.revision, nil
}

// Delete implements [topic.Meta].
func (m *memoryMeta) Delete(_ context.Context, key string, revision uint64, guards ...topic.Guard) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	switch {
	case !ok:
		return topic.ErrNotFound
	case item.Revision != revision, !m.hold(guards):
		return topic.ErrConflict
	}
	delete(m.items, key)
	m.notify(key)
	return nil
}

// hold reports whether all guards hold. The caller holds mu.
func (m *memoryMeta) hold(guards []topic.Guard) bool {
	return !slices.ContainsFunc(guards, func(g topic.Guard) bool { return m.items[g.Key].Revision != g.Revision })
}

// notify signals the watches of a key. The caller holds mu.
func (m *memoryMeta) notify(key string) {
	for w := range maps.Keys(m.watches) {
		if strings.HasPrefix(key, w.prefix) {
			w.signal()
		}
	}
}

// List implements [topic.Meta].
func (m *memoryMeta) List(_ context.Context, prefix string) ([]topic.Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var items []topic.Item
	for key, item := range m.items {
		if strings.HasPrefix(key, prefix) {
			items = append(items, item)
		}
	}
	sort.Slice(items, func(i, j int) bool { return items[i].Key < items[j].Key })
	return items, nil
}

// Sync implements [topic.Meta].
func (m *memoryMeta) Sync(ctx context.Context) error { return ctx.Err() }

// Watch implements [topic.Meta].
func (m *memoryMeta) Watch(prefix string, signal func()) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watches == nil {
		m.watches = map[*memoryWatch]bool{}
	}
	w := &memoryWatch{prefix, signal}
	m.watches[w] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, w)
	}
}
