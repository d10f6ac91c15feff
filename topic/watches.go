package topic

import (
	"slices"
	"strings"
	"sync"
)

// Watches has the signals that a Meta calls when keys change. The zero value has none.
type Watches struct {
	mu  sync.Mutex
	all map[*watch]bool
}

type watch struct {
	prefix string
	signal func()
}

// Add calls signal when a key that begins with prefix has changed, until cancel is called.
func (ws *Watches) Add(prefix string, signal func()) (cancel func()) {
	w := &watch{prefix, signal}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[*watch]bool{}
	}
	ws.all[w] = true
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.all, w)
	}
}

// Notify calls each signal once whose prefix one of the keys has.
func (ws *Watches) Notify(keys ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, w.prefix) }) {
			w.signal()
		}
	}
}
