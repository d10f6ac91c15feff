package storetest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// longVariable makes the models run longer, if it is 1.
const longVariable = "SLUICE_LONG"

// rounds returns how many times a model repeats its steps on one log.
func rounds() int {
	if os.Getenv(longVariable) == "1" {
		return 3
	}
	return 1
}

// rapidTB is a testing.TB that fails a rapid test.
type rapidTB struct {
	testing.TB
	rapid *rapid.T
}

func (t rapidTB) Error(args ...any)            { t.rapid.Error(args...) }
func (t rapidTB) Errorf(f string, args ...any) { t.rapid.Errorf(f, args...) }
func (t rapidTB) Fatal(args ...any)            { t.rapid.Fatal(args...) }
func (t rapidTB) Fatalf(f string, args ...any) { t.rapid.Fatalf(f, args...) }
func (t rapidTB) Helper()                      { t.rapid.Helper() }

// within returns the kit of one run of a model. All runs share the store, because opening
// one takes long.
func (k *kit) within(rt *rapid.T) *kit {
	inner := *k
	inner.t = rapidTB{k.t, rt}
	return &inner
}

// maybeRestart restarts the store in one of 16 calls.
func (k *kit) maybeRestart(rt *rapid.T, outer *kit) bool {
	ways := []string{}
	for _, way := range []string{"reopen", "crash"} {
		if newWays(k.factory)[way] != nil {
			ways = append(ways, way)
		}
	}
	if len(ways) == 0 || rapid.IntRange(0, 15).Draw(rt, "restart at 15") < 15 {
		return false
	}
	k.restart(rapid.SampledFrom(ways).Draw(rt, "way"))
	outer.store = k.store
	return true
}

// checkLog runs random operations against a log and its model.
func checkLog(t testing.TB, factory Factory) {
	outer := newKit(t, factory)
	runs, steps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		k := outer.within(rt)
		m := &logModel{kit: k, outer: outer, name: fmt.Sprint("model", runs), first: 1}
		m.log = k.log(m.name)
		for range rounds() {
			rt.Repeat(map[string]func(*rapid.T){
				"append": m.append, "append wrongly": m.appendWrongly, "append in parts": m.append,
				"read": m.read, "read all": m.readAll, "trim": m.trim, "ends": m.checkEnds, "delete": m.delete,
				"restart": m.restart, "": func(*rapid.T) { steps++ },
			})
		}
		m.readAll(rt)
		k.must(k.store.DeleteLog(k.ctx, m.name))
	})
	t.Logf("%d steps", steps)
}

// logModel is the expected content of a log.
type logModel struct {
	*kit
	outer   *kit
	name    string
	log     topic.Log
	first   uint64
	entries []topic.Entry
}

func (m *logModel) last() uint64 { return m.first + uint64(len(m.entries)) - 1 }

// draw draws consecutive entries.
func (m *logModel) draw(rt *rapid.T, sequence uint64) []topic.Entry {
	var all []topic.Entry
	for range rapid.IntRange(1, 8).Draw(rt, "entries") {
		all = append(all, entry(sequence, rapid.OneOf(
			rapid.IntRange(0, 300), rapid.SampledFrom([]int{4096, 70_000}),
		).Draw(rt, "bytes")))
		sequence++
	}
	return all
}

func (m *logModel) append(rt *rapid.T) {
	all := m.draw(rt, m.last()+1)
	m.mustAppend(m.log, all...)
	m.entries = append(m.entries, all...)
}

// appendWrongly sends an entry with a wrong sequence between right ones. Later ones may fail,
// be written, or be written and not acknowledged.
func (m *logModel) appendWrongly(rt *rapid.T) {
	good := m.draw(rt, m.last()+1)
	split := rapid.IntRange(0, len(good)).Draw(rt, "good before")
	next := m.last() + 1 + uint64(split)
	wrong := rapid.OneOf(rapid.Uint64Range(0, next+3), rapid.Uint64Range(1<<40, 1<<50)).
		Filter(func(s uint64) bool { return s != next }).Draw(rt, "sequence")
	all := append(append(append([]topic.Entry{}, good[:split]...), entry(wrong, 10)), good[split:]...)
	errs := m.kit.append(m.log, all...)
	for i, err := range errs[:split] {
		if err != nil {
			rt.Fatalf("append %d: %v", all[i].Sequence, err)
		}
	}
	m.is(errs[split], topic.ErrFenced)
	m.entries = append(m.entries, good[:split]...)
	_, last, err := m.log.Ends(m.ctx)
	m.must(err)
	if last < m.last() || last > m.last()+uint64(len(good)-split) {
		rt.Fatalf("the last is %d, want %d to %d", last, m.last(), m.last()+uint64(len(good)-split))
	}
	for i, e := range good[split:] {
		err := errs[split+1+i]
		switch written := e.Sequence <= last; {
		case err == nil && !written:
			rt.Fatalf("append %d was reported, and is not there", e.Sequence)
		case err != nil && !errors.Is(err, topic.ErrFenced) && !errors.Is(err, topic.ErrUncertain):
			rt.Fatalf("append %d: %v", e.Sequence, err)
		case errors.Is(err, topic.ErrFenced) && written:
			rt.Fatalf("append %d was fenced, and is there", e.Sequence)
		case written:
			m.entries = append(m.entries, e)
		}
	}
}

func (m *logModel) read(rt *rapid.T) {
	from := rapid.Uint64Range(0, m.last()+3).Draw(rt, "from")
	maxBytes := rapid.OneOf(rapid.IntRange(0, 2000), rapid.Just(1<<20)).Draw(rt, "bytes")
	got, err := m.log.Read(m.ctx, from, maxBytes)
	m.must(err)
	m.must(checkRead(got, m.entries, from, maxBytes))
}

func (m *logModel) readAll(rt *rapid.T) {
	got := m.kit.readAll(m.log, m.first, rapid.IntRange(1, 100_000).Draw(rt, "bytes at once"))
	m.must(same(got, m.entries))
}

func (m *logModel) trim(rt *rapid.T) {
	before := rapid.Uint64Range(0, m.last()+3).Draw(rt, "before")
	m.must(m.log.Trim(m.ctx, before))
	if before = min(before, m.last()+1); before > m.first {
		m.entries = m.entries[before-m.first:]
		m.first = before
	}
	m.checkEnds(rt)
}

func (m *logModel) checkEnds(*rapid.T) {
	m.ends(m.log, m.first, m.last())
	m.must(m.log.Wait(m.ctx, m.last()))
}

func (m *logModel) delete(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "delete at 3") < 3 {
		return
	}
	m.must(m.store.DeleteLog(m.ctx, m.name))
	m.is(m.kit.append(m.log, entry(m.last()+1, 1))[0], topic.ErrNoLog)
	m.log = m.kit.log(m.name)
	m.first, m.entries = 1, nil
}

func (m *logModel) restart(rt *rapid.T) {
	if m.maybeRestart(rt, m.outer) {
		m.log = m.kit.log(m.name)
	}
}
