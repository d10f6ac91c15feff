package engine

import (
	"container/list"
	"sync"
)

// maxVerified is how many signed, and how many verified, passes a keyring remembers:
// signing and verifying take longer than the rest of a request. It remembers valid passes
// only, so that forgeries cannot fill it; some 1,200 bytes each.
const maxVerified = 10_000

// passCache remembers passes by their text and by their claims.
type passCache struct {
	mu     sync.Mutex
	passes lru[string, Pass]
	texts  lru[passClaims, string]
}

func newPassCache(limit int) *passCache {
	return &passCache{passes: newLRU[string, Pass](limit), texts: newLRU[passClaims, string](limit)}
}

// signed returns the text of a pass that was signed here.
func (c *passCache) signed(claims passClaims) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := c.texts.get(claims); text != nil {
		return *text, true
	}
	return "", false
}

func (c *passCache) sign(claims passClaims, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.texts.getOrAdd(claims) = text
}

func (c *passCache) get(text string) (Pass, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pass := c.passes.get(text); pass != nil {
		return *pass, true
	}
	return Pass{}, false
}

func (c *passCache) put(text string, pass Pass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.passes.getOrAdd(text) = pass
}

// lru is a map of at most limit values, which forgets the least recently used one. It is
// for one goroutine at a time.
type lru[K comparable, V any] struct {
	limit  int
	byKey  map[K]*list.Element
	recent *list.List // of *entry, the last used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) lru[K, V] {
	return lru[K, V]{limit, make(map[K]*list.Element), list.New()}
}

// get returns a value, to be changed in place, or nil.
func (l *lru[K, V]) get(key K) *V {
	element := l.byKey[key]
	if element == nil {
		return nil
	}
	l.recent.MoveToFront(element)
	return &element.Value.(*entry[K, V]).value
}

// getOrAdd returns a value, to be changed in place: the zero one if there was none.
func (l *lru[K, V]) getOrAdd(key K) *V {
	if value := l.get(key); value != nil {
		return value
	}
	if len(l.byKey) >= l.limit {
		oldest := l.recent.Remove(l.recent.Back()).(*entry[K, V])
		delete(l.byKey, oldest.key)
	}
	added := &entry[K, V]{key: key}
	l.byKey[key] = l.recent.PushFront(added)
	return &added.value
}
