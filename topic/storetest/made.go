package storetest

import (
	"testing"

	"github.com/sluice-project/sluice/topic"
)

// madeCases are about logs that do not begin at the beginning.
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

// RunMade runs the part of the suite that is about topic.LogMaker.
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

// madeEnds returns the log, made if it does not exist, after it has checked its ends.
func (k *kit) madeEnds(make, first, last uint64) topic.Log {
	k.t.Helper()
	log, err := k.store.(topic.LogMaker).MakeLog(k.ctx, "made", nil, make)
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
