package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// guarded puts a key with guards.
func (k *kit) guarded(key string, revision uint64, guards ...topic.Guard) (uint64, error) {
	return k.store.Meta().Put(k.ctx, key, []byte("guarded"), revision, guards...)
}

var guardCases = []testCase{
	{"a write is made while its guards hold", func(k *kit) {
		lease, other := k.put("lease", "node", 0), k.put("other", "", 0)
		guards := []topic.Guard{{Key: "lease", Revision: lease}, {Key: "other", Revision: other}, {Key: "none"}}
		revision, err := k.guarded("key", 0, guards...)
		k.must(err)
		revision, err = k.guarded("key", revision, guards...)
		k.must(err)
		k.must(k.store.Meta().Delete(k.ctx, "key", revision, guards...))
		k.hasNot("key")
		k.has("lease", "node", lease)
	}},
	{"one broken guard holds a write back", func(k *kit) {
		old := k.put("lease", "node", 0)
		lease, key := k.put("lease", "other", old), k.put("key", "value", 0)
		held := topic.Guard{Key: "lease", Revision: lease}
		for _, broken := range []topic.Guard{
			{Key: "lease", Revision: old}, {Key: "lease"}, {Key: "lease", Revision: lease + 1},
			{Key: "none", Revision: lease}, {Key: "lease/", Revision: lease},
		} {
			for _, guards := range [][]topic.Guard{{broken}, {held, broken}, {broken, held}} {
				_, err := k.guarded("key", key, guards...)
				k.is(err, topic.ErrConflict)
				_, err = k.guarded("new", 0, guards...)
				k.is(err, topic.ErrConflict)
				k.is(k.store.Meta().Delete(k.ctx, "key", key, guards...), topic.ErrConflict)
			}
		}
		k.has("key", "value", key)
		k.hasNot("new")
		k.must(k.store.Meta().Delete(k.ctx, "lease", lease))
		_, err := k.guarded("key", key, held)
		k.is(err, topic.ErrConflict)
	}},
	{"guards do not replace the key's own condition", func(k *kit) {
		lease, key := k.put("lease", "node", 0), k.put("key", "value", 0)
		_, err := k.guarded("key", 0, topic.Guard{Key: "lease", Revision: lease})
		k.is(err, topic.ErrConflict)
		_, err = k.guarded("key", key, topic.Guard{Key: "key", Revision: key})
		k.must(err)
	}},
	{"of writes at once none passes a guard that was broken before", func(k *kit) {
		// After a change of the lease, a key that is not there yet must never appear.
		const rounds = 60
		lease := k.put("lease", "0", 0)
		for round := range rounds {
			absent := false
			before, key := lease, fmt.Sprint("key", round)
			work(2, func(worker int) error {
				if worker == 0 {
					next, err := k.store.Meta().Put(k.ctx, "lease", nil, before)
					if err != nil {
						return err
					}
					lease = next
					_, err = k.store.Meta().Get(k.ctx, key)
					if absent = errors.Is(err, topic.ErrNotFound); absent {
						return nil
					}
					return err
				}
				_, err := k.guarded(key, 0, topic.Guard{Key: "lease", Revision: before})
				if errors.Is(err, topic.ErrConflict) {
					return nil
				}
				return err
			}, k)
			if absent {
				k.hasNot(key)
			}
		}
	}},
}

// soon waits until a count is above a number.
func (k *kit) soon(count *atomic.Int64, above int64) {
	k.t.Helper()
	for deadline := time.Now().Add(patience); count.Load() <= above; {
		if time.Now().After(deadline) {
			k.t.Fatalf("no signal within %v", patience)
		}
		<-time.After(time.Millisecond)
	}
}

var watchCases = []testCase{
	{"a sync changes nothing", func(k *kit) {
		revision := k.put("key", "value", 0)
		for range 3 {
			k.must(k.store.Meta().Sync(k.ctx))
			k.has("key", "value", revision)
			k.lists("", "key")
		}
	}},
	{"a watch tells of all that begins with its prefix", func(k *kit) {
		prefixes := []string{"", "a", "a/", "a/b", "b", "\xff"}
		counts := make([]atomic.Int64, len(prefixes))
		for i, prefix := range prefixes {
			defer k.store.Meta().Watch(prefix, func() { counts[i].Add(1) })()
		}
		for key, told := range map[string][]int{
			"a/b": {0, 1, 2, 3}, "a/": {0, 1, 2}, "a": {0, 1}, "b/a": {0, 4}, "": {0}, "\xff\xff": {0, 5},
		} {
			before := make([]int64, len(prefixes))
			look := func() {
				for i := range counts {
					before[i] = counts[i].Load()
				}
			}
			wait := func() {
				for _, i := range told {
					k.soon(&counts[i], before[i])
				}
			}
			look()
			revision := k.put(key, "one", 0)
			wait()
			look()
			revision = k.put(key, "two", revision)
			wait()
			look()
			k.must(k.store.Meta().Delete(k.ctx, key, revision))
			wait()
		}
	}},
	{"a signal comes after the change", func(k *kit) {
		signals := make(chan bool, 1000)
		defer k.store.Meta().Watch("key", func() { signals <- true })()
		for round := range 20 {
			revision := k.put("key", fmt.Sprint(round), 0)
			k.seen(signals, func() bool {
				item, err := k.store.Meta().Get(k.ctx, "key")
				return err == nil && item.Revision == revision
			})
			k.must(k.store.Meta().Delete(k.ctx, "key", revision))
			k.seen(signals, func() bool {
				_, err := k.store.Meta().Get(k.ctx, "key")
				return errors.Is(err, topic.ErrNotFound)
			})
		}
	}},
	{"a watch that is cancelled is silent, and others are not", func(k *kit) {
		for round := range 20 {
			var over, wrong atomic.Bool
			var count atomic.Int64
			cancel := k.store.Meta().Watch("key", func() {
				if over.Load() {
					wrong.Store(true)
				}
			})
			end := k.store.Meta().Watch("key", func() { count.Add(1) })
			work(2, func(worker int) error {
				if worker == 0 {
					cancel()
					over.Store(true)
					return nil
				}
				_, err := k.store.Meta().Put(k.ctx, fmt.Sprint("key", round), nil, 0)
				return err
			}, k)
			k.put(fmt.Sprint("key", round, "/after"), "", 0)
			k.soon(&count, 1)
			cancel()
			end()
			if wrong.Load() {
				k.t.Fatal("a watch was told of something after it was cancelled")
			}
		}
	}},
}

// seen waits for a signal after which a condition holds.
func (k *kit) seen(signals <-chan bool, is func() bool) {
	k.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case <-signals:
			if is() {
				return
			}
		case <-deadline:
			k.t.Fatalf("no signal within %v after which it is true", patience)
		}
	}
}
