package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/topic"
)

func (k *kit) put(key, value string, revision uint64) uint64 {
	k.t.Helper()
	next, err := k.store.Meta().Put(k.ctx, key, []byte(value), revision)
	k.must(err)
	return next
}

// has checks a key's value and revision.
func (k *kit) has(key, value string, revision uint64) {
	k.t.Helper()
	item, err := k.store.Meta().Get(k.ctx, key)
	k.must(err)
	if item.Key != key || string(item.Value) != value || item.Revision != revision {
		k.t.Fatalf("key %q is %q %.100q at revision %d, want %.100q at %d", key, item.Key, item.Value, item.Revision, value, revision)
	}
}

// hasNot checks that a key does not exist.
func (k *kit) hasNot(key string) {
	k.t.Helper()
	_, err := k.store.Meta().Get(k.ctx, key)
	k.is(err, topic.ErrNotFound)
}

// lists checks the keys that a list returns.
func (k *kit) lists(prefix string, want ...string) {
	k.t.Helper()
	items, err := k.store.Meta().List(k.ctx, prefix)
	k.must(err)
	got := make([]string, len(items))
	for i, item := range items {
		got[i] = item.Key
	}
	if !slices.Equal(got, want) {
		k.t.Fatalf("list of %q is %.500q, want %.500q", prefix, got, want)
	}
}

// oddKeys returns keys that an encoding may confuse with others or with its separators.
func oddKeys() []string {
	keys := []string{
		"", "/", "//", "///", "a", "a/", "/a", "a/b", "a//b", "a/b/", "a.b", "a.", ".a", ".", "..", "a b", " ", "a\tb", "\r\n", "\n",
		"*", ">", "a.>", "a/>", "a/*", "$", "$JS", "=", "==", "=2F", "a=2Fb", "=3D", "%", "%2F", "\\", "\"", "'", "ä", "日本", "🙂",
		"\x00", "a\x00", "a\x00b", "\xff", "\xff\xff", "\xc3", "A", "B", "a_b", "a-b", "-", "_", "meta", "meta.", "log-a",
		strings.Repeat("/", 600), strings.Repeat("\xff", 600), strings.Repeat("k", 600), strings.Repeat("k", 599), strings.Repeat("a/", 300),
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return append(keys, string(every))
}

var metaCases = []testCase{
	{"a key has the value that was put", func(k *kit) {
		k.hasNot("key")
		one := k.put("key", "one", 0)
		k.has("key", "one", one)
		two := k.put("key", "two", one)
		if two == one || one == 0 || two == 0 {
			k.t.Fatalf("revisions are %d and %d: want two numbers above 0", one, two)
		}
		k.has("key", "two", two)
		k.hasNot("other")
	}},
	{"a value may be empty, binary and 4 MiB long", func(k *kit) {
		for i, value := range [][]byte{{}, {0}, []byte("\r\n\x00\xff"), bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)} {
			key := fmt.Sprint("value", i)
			k.has(key, string(value), k.put(key, string(value), 0))
		}
	}},
	{"a put with another revision changes nothing", func(k *kit) {
		m := k.store.Meta()
		one := k.put("key", "one", 0)
		two := k.put("key", "two", one)
		for _, revision := range []uint64{0, one, two + 1, 1 << 60} {
			_, err := m.Put(k.ctx, "key", []byte("wrong"), revision)
			k.is(err, topic.ErrConflict)
			k.has("key", "two", two)
		}
		_, err := m.Put(k.ctx, "new", []byte("wrong"), two)
		k.is(err, topic.ErrConflict)
		k.hasNot("new")
		// An unchanged value is a change too.
		three := k.put("key", "two", two)
		if three == two {
			k.t.Fatal("a put left the revision as it was")
		}
	}},
	{"a deleted key is gone", func(k *kit) {
		m := k.store.Meta()
		one := k.put("key", "one", 0)
		for _, revision := range []uint64{0, one + 1} {
			k.is(m.Delete(k.ctx, "key", revision), topic.ErrConflict)
		}
		k.has("key", "one", one)
		k.must(m.Delete(k.ctx, "key", one))
		k.hasNot("key")
		k.lists("")
		k.is(m.Delete(k.ctx, "key", one), topic.ErrNotFound)
		k.is(m.Delete(k.ctx, "key", 0), topic.ErrNotFound)
		_, err := m.Put(k.ctx, "key", []byte("wrong"), one)
		k.is(err, topic.ErrConflict)
	}},
	{"a key that is set again has another revision", func(k *kit) {
		m := k.store.Meta()
		seen := map[uint64]bool{}
		for range 20 {
			revision := k.put("key", "value", 0)
			if seen[revision] {
				k.t.Fatalf("revision %d was given twice", revision)
			}
			seen[revision] = true
			k.must(m.Delete(k.ctx, "key", revision))
		}
		k.hasNot("key")
	}},
	{"keys are any bytes", func(k *kit) {
		revisions := map[string]uint64{}
		for _, key := range oddKeys() {
			revisions[key] = k.put(key, "value of "+key, 0)
		}
		for key, revision := range revisions {
			k.has(key, "value of "+key, revision)
		}
		all := oddKeys()
		slices.Sort(all)
		k.lists("", all...)
		for _, prefix := range all {
			var want []string
			for _, key := range all {
				if strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			k.lists(prefix, want...)
		}
		for key, revision := range revisions {
			k.must(k.store.Meta().Delete(k.ctx, key, revision))
		}
		k.lists("")
	}},
	{"a list has the keys that begin with a prefix, in order", func(k *kit) {
		for _, key := range []string{"topics/b", "topics/a", "topic", "topics", "topics/", "topicsx", "topics/a/1", "groups/a", "topics/c"} {
			k.put(key, key, 0)
		}
		k.lists("topics/", "topics/", "topics/a", "topics/a/1", "topics/b", "topics/c")
		k.lists("topics/a", "topics/a", "topics/a/1")
		k.lists("topics", "topics", "topics/", "topics/a", "topics/a/1", "topics/b", "topics/c", "topicsx")
		k.lists("g", "groups/a")
		k.lists("none")
	}},
	{"a list has values and revisions", func(k *kit) {
		want := map[string]uint64{}
		for i := range 50 {
			key := fmt.Sprintf("k/%02d", i)
			want[key] = k.put(key, "old", 0)
			if i%2 == 0 {
				want[key] = k.put(key, "new", want[key])
			}
		}
		items, err := k.store.Meta().List(k.ctx, "k/")
		k.must(err)
		if len(items) != len(want) {
			k.t.Fatalf("%d items, want %d", len(items), len(want))
		}
		for i, item := range items {
			value := "old"
			if i%2 == 0 {
				value = "new"
			}
			if item.Key != fmt.Sprintf("k/%02d", i) || item.Revision != want[item.Key] || string(item.Value) != value {
				k.t.Fatalf("item %d is %q at %d: %q", i, item.Key, item.Revision, item.Value)
			}
		}
	}},
	{"the value may be changed after put", func(k *kit) {
		value := []byte("value")
		revision, err := k.store.Meta().Put(k.ctx, "key", value, 0)
		k.must(err)
		clear(value)
		k.has("key", "value", revision)
	}},
}
