package natsstore

import (
	"strings"
	"sync"
)

// watches are those who watch keys of the metadata.
type watches struct {
	mu  sync.Mutex
	all map[*watch]bool
}

type watch struct {
	prefix string
	signal func()
}

// Watch calls signal whenever an item whose key begins with prefix may have
// changed, until cancel is called.
func (m *meta) Watch(prefix string, signal func()) (cancel func()) {
	w := &watch{prefix, signal}
	m.watches.mu.Lock()
	defer m.watches.mu.Unlock()
	if m.watches.all == nil {
		m.watches.all = map[*watch]bool{}
	}
	m.watches.all[w] = true
	return func() {
		m.watches.mu.Lock()
		defer m.watches.mu.Unlock()
		delete(m.watches.all, w)
	}
}

// tell signals once each of those who watch one of the keys.
func (ws *watches) tell(keys []string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		for _, key := range keys {
			if strings.HasPrefix(key, w.prefix) {
				w.signal()
				break
			}
		}
	}
}
