package storetest

import (
	"bytes"
	"testing"

	"github.com/sluice-project/sluice/topic"
)

var restartCases = []restartCase{
	{"entries and marks are there", func(k *kit, restart func()) {
		all := append(entries(1, 30, 100), entry(31, 2<<20))
		k.mustAppend(k.log("kept"), all...)
		for range 2 {
			restart()
			k.ends(k.log("kept"), 1, 31)
			k.holds(k.log("kept"), all...)
		}
		k.mustAppend(k.log("kept"), entry(32, 10))
	}},
	{"the fence holds", func(k *kit, restart func()) {
		k.mustAppend(k.log("fence"), entries(1, 5, 10)...)
		restart()
		l := k.log("fence")
		for _, sequence := range []uint64{1, 5, 7} {
			k.is(k.append(l, entry(sequence, 10))[0], topic.ErrFenced)
		}
		k.mustAppend(l, entry(6, 10))
		k.holds(l, entries(1, 6, 10)...)
	}},
	{"a trimmed log stays trimmed", func(k *kit, restart func()) {
		l := k.log("trim")
		k.mustAppend(l, entries(1, 20, 1000)...)
		k.must(l.Trim(k.ctx, 15))
		restart()
		k.ends(k.log("trim"), 15, 20)
		k.holds(k.log("trim"), entries(15, 20, 1000)...)
	}},
	{"the last sequence stays when all was trimmed", func(k *kit, restart func()) {
		l := k.log("all")
		k.mustAppend(l, entries(1, 20, 1000)...)
		k.must(l.Trim(k.ctx, 21))
		for range 2 {
			restart()
			l = k.log("all")
			k.ends(l, 21, 20)
			k.is(k.append(l, entry(1, 10))[0], topic.ErrFenced)
		}
		k.mustAppend(l, entry(21, 10))
		restart()
		k.holds(k.log("all"), entry(21, 10))
	}},
	{"a deleted log stays deleted", func(k *kit, restart func()) {
		k.mustAppend(k.log("gone"), entries(1, 3, 10)...)
		k.must(k.store.DeleteLog(k.ctx, "gone"))
		restart()
		k.ends(k.log("gone"), 1, 0)
		k.mustAppend(k.log("gone"), entry(1, 10))
		restart()
		k.holds(k.log("gone"), entry(1, 10))
	}},
	{"wait knows what was there before", func(k *kit, restart func()) {
		k.mustAppend(k.log("wait"), entries(1, 3, 10)...)
		restart()
		k.must(k.log("wait").Wait(k.ctx, 3))
	}},
	{"keys and revisions are there", func(k *kit, restart func()) {
		large := string(bytes.Repeat([]byte{7}, 1<<20))
		one, two := k.put("one", "value", 0), k.put("two", large, 0)
		two = k.put("two", large+"!", two)
		restart()
		k.has("one", "value", one)
		k.has("two", large+"!", two)
		k.lists("", "one", "two")
		_, err := k.store.Meta().Put(k.ctx, "one", nil, 0)
		k.is(err, topic.ErrConflict)
		k.put("one", "changed", one)
	}},
	{"deleted keys stay deleted, and their revisions are not given again", func(k *kit, restart func()) {
		seen := map[uint64]bool{}
		for range 4 {
			revision := k.put("key", "value", 0)
			if seen[revision] {
				k.t.Fatalf("revision %d was given twice", revision)
			}
			seen[revision] = true
			k.must(k.store.Meta().Delete(k.ctx, "key", revision))
			restart()
			k.hasNot("key")
			k.lists("")
		}
	}},
	{"what was reported is there, whatever was under way", func(k *kit, restart func()) {
		l := k.log("close")
		all := entries(1, 300, 100)
		outcome := make(chan error, len(all))
		for _, e := range all {
			l.Append(e, func(err error) { outcome <- err })
		}
		for range 20 {
			k.must(<-outcome)
		}
		restart()
		got := k.readAll(k.log("close"), 1, 1<<20)
		if len(got) < 20 {
			k.t.Fatalf("%d entries, 20 were reported", len(got))
		}
		k.must(same(got, all[:len(got)]))
		// Appends in flight are reported too, as written or failed.
		for range len(all) - 20 {
			if err := <-outcome; err != nil {
				k.t.Logf("under way when the log was closed: %v", err)
			}
		}
	}},
}

// madeCases are about logs that begin at a given sequence.
var madeCases = []restartCase{
	{"a log that begins at a sequence", func(k *kit, restart func()) {
		for _, first := range []uint64{1, 2, 4711, 1 << 40} {
			k.must(k.store.DeleteLog(k.ctx, "made"))
			k.madeEnds(first, first, first-1)
			restart() // while it is empty
			log := k.madeEnds(7, first, first-1)
			for _, wrong := range []uint64{first - 1, first + 1} {
				k.is(madeAppend(log, wrong), topic.ErrFenced)
			}
			for n := range uint64(3) {
				k.must(madeAppend(log, first+n))
			}
			restart()
			log = k.madeEnds(7, first, first+2)
			entries, err := log.Read(k.ctx, 1, 1<<20)
			k.must(err)
			if len(entries) != 3 || entries[0].Sequence != first {
				k.t.Fatalf("a log that begins at %d has %v", first, entries)
			}
			k.must(log.Trim(k.ctx, first+2))
			k.madeEnds(7, first+2, first+2)
		}
	}},
}

// RunMade runs the part of the suite that is about MakeLog.
func RunMade(t *testing.T, factory Factory) {
	for way := range newWays(factory) {
		t.Run(way, func(t *testing.T) {
			for _, c := range madeCases {
				t.Run(c.name, func(t *testing.T) {
					k := newKit(t, factory)
					c.run(k, func() { k.restart(way) })
				})
			}
		})
	}
}

// madeEnds returns the log, makes it if it does not exist, and checks its ends.
func (k *kit) madeEnds(make, first, last uint64) topic.Log {
	k.t.Helper()
	log, err := k.store.MakeLog(k.ctx, "made", onOne, make)
	k.must(err)
	if f, l, err := log.Ends(k.ctx); f != first || l != last || err != nil {
		k.t.Fatalf("ends %d, %d, %v: want %d, %d", f, l, err, first, last)
	}
	return log
}

func madeAppend(log topic.Log, sequence uint64) error {
	done := make(chan error, 1)
	log.Append(entry(sequence, 10), func(err error) { done <- err })
	return <-done
}
