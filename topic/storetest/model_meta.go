package storetest

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// checkMeta runs random operations against the metadata and its model.
func checkMeta(t testing.TB, factory Factory) {
	outer := newKit(t, factory)
	runs, steps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		m := &metaModel{
			kit: outer.within(rt), outer: outer, prefix: fmt.Sprint("run", runs, "/"),
			items: map[string]topic.Item{}, given: map[string]map[uint64]bool{},
		}
		for range rounds() {
			rt.Repeat(map[string]func(*rapid.T){
				"put": m.put, "put wrongly": m.putWrongly, "delete": m.delete, "delete wrongly": m.deleteWrongly,
				"get": m.get, "list": m.list, "restart": m.restart, "": func(*rapid.T) { steps++ },
			})
		}
		m.listOf(m.prefix)
	})
	t.Logf("%d steps", steps)
}

// metaModel is the expected state of the keys with a prefix.
type metaModel struct {
	*kit
	outer  *kit
	prefix string
	items  map[string]topic.Item
	given  map[string]map[uint64]bool // the revisions that each key has had
}

// key draws a key, mostly one of few, so that operations meet.
func (m *metaModel) key(rt *rapid.T) string {
	return m.prefix + rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "a/b", "a/", "a/b/c", "a.b", "=", "*", ">", "ä", "\x00", "\xff"}),
		rapid.StringOfN(rapid.SampledFrom([]rune("ab/.=")), 0, 4, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
	).Draw(rt, "key")
}

func (m *metaModel) put(rt *rapid.T) {
	key := m.key(rt)
	value := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(rt, "value")
	revision, err := m.store.Meta().Put(m.ctx, key, value, m.items[key].Revision)
	m.must(err)
	if revision == 0 || m.given[key][revision] {
		rt.Fatalf("put of %q returns revision %d: want one that the key never had", key, revision)
	}
	if m.given[key] == nil {
		m.given[key] = map[uint64]bool{}
	}
	m.given[key][revision] = true
	m.items[key] = topic.Item{Key: key, Value: value, Revision: revision}
}

// wrong draws a revision other than the key's.
func (m *metaModel) wrong(rt *rapid.T, key string) uint64 {
	revisions := []uint64{0, m.items[key].Revision + 1, 1 << 50}
	for revision := range m.given[key] {
		revisions = append(revisions, revision)
	}
	sort.Slice(revisions, func(i, j int) bool { return revisions[i] < revisions[j] })
	return rapid.SampledFrom(revisions).
		Filter(func(r uint64) bool { return r != m.items[key].Revision }).Draw(rt, "revision")
}

func (m *metaModel) putWrongly(rt *rapid.T) {
	key := m.key(rt)
	_, err := m.store.Meta().Put(m.ctx, key, []byte("wrong"), m.wrong(rt, key))
	m.is(err, topic.ErrConflict)
	m.getOf(key)
}

func (m *metaModel) delete(rt *rapid.T) {
	key := m.key(rt)
	err := m.store.Meta().Delete(m.ctx, key, m.items[key].Revision)
	if m.items[key].Revision == 0 {
		m.is(err, topic.ErrNotFound)
	} else {
		m.must(err)
	}
	delete(m.items, key)
	m.getOf(key)
}

func (m *metaModel) deleteWrongly(rt *rapid.T) {
	key := m.key(rt)
	err := m.store.Meta().Delete(m.ctx, key, m.wrong(rt, key))
	if m.items[key].Revision == 0 {
		m.is(err, topic.ErrNotFound)
	} else {
		m.is(err, topic.ErrConflict)
	}
	m.getOf(key)
}

func (m *metaModel) get(rt *rapid.T) { m.getOf(m.key(rt)) }

func (m *metaModel) getOf(key string) {
	m.t.Helper()
	if item, ok := m.items[key]; ok {
		m.has(key, string(item.Value), item.Revision)
	} else {
		m.hasNot(key)
	}
}

func (m *metaModel) list(rt *rapid.T) { m.listOf(m.key(rt)) }

func (m *metaModel) listOf(prefix string) {
	m.t.Helper()
	var want []string
	for key := range m.items {
		if strings.HasPrefix(key, prefix) {
			want = append(want, key)
		}
	}
	sort.Strings(want)
	got, err := m.store.Meta().List(m.ctx, prefix)
	m.must(err)
	if len(got) != len(want) {
		m.t.Fatalf("list of %q has %d items, want %q", prefix, len(got), want)
	}
	for i, item := range got {
		is := m.items[want[i]]
		if item.Key != is.Key || string(item.Value) != string(is.Value) || item.Revision != is.Revision {
			m.t.Fatalf("list of %q has %+v, want %+v", prefix, item, is)
		}
	}
}

func (m *metaModel) restart(rt *rapid.T) { m.maybeRestart(rt, m.outer) }
