package natsstore

import (
	"slices"
	"strings"
	"sync"
)

// watches are the signals of those who wait for keys to change. The zero value has none.
type watches struct {
	mu  sync.Mutex
	all map[*watch]bool
}

type watch struct {
	prefix string
	signal func()
}

// add calls signal when a key that begins with prefix has changed, until cancel is called.
func (ws *watches) add(prefix string, signal func()) (cancel func()) {
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

// notify calls each signal once whose prefix one of the keys has.
func (ws *watches) notify(keys ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, w.prefix) }) {
			w.signal()
		}
	}
}
