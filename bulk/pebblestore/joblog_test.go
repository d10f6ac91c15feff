package pebblestore

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// noted is one event with the arguments of call.note.
type noted struct {
	kind     event
	index    uint32
	argument int64
}

var anyEvent = rapid.Custom(func(t *rapid.T) noted {
	e := noted{
		kind: event(rapid.IntRange(int(evLeased), int(evCanceled)).Draw(t, "event")),
		// The first indexes, so that runs and repetitions are frequent; and the last ones.
		index: rapid.OneOf(rapid.Uint32Range(0, 12), rapid.Uint32Range(pageSize-3, pageSize-1)).Draw(t, "job"),
	}
	if e.kind.hasArgument() {
		e.argument = rapid.SampledFrom([]int64{0, 1, 2, 1_700_000_000_000, math.MaxInt64}).Draw(t, "argument")
	}
	return e
})

// written returns the log of events, split into several calls.
func written(page uint32, calls [][]noted) (log []byte) {
	w := jobWriter{page: page}
	for _, events := range calls {
		for _, e := range events {
			w.add(e.kind, page<<pageBits|e.index, e.argument)
		}
		w.flush()
		log, w.log = append(log, w.log...), w.log[:0]
	}
	return log
}

// touched returns the facts without those of jobs that were never leased, which a snapshot
// omits. In a real log, a job's first event is a lease.
func touched(facts pageFacts) pageFacts {
	for i := range facts.jobs {
		if facts.jobs[i].phase == untouched {
			facts.jobs[i] = jobFacts{}
		}
	}
	return facts
}

func applied(calls [][]noted) *pageFacts {
	facts := new(pageFacts)
	for _, events := range calls {
		for _, e := range events {
			facts.apply(&facts.jobs[e.index], e.kind, e.argument)
		}
	}
	return facts
}

func TestAReplayedLogIsWhatHappened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.Uint32Range(0, math.MaxUint32>>pageBits).Draw(t, "page")
		calls := rapid.SliceOf(rapid.SliceOfN(anyEvent, 1, 20)).Draw(t, "calls")
		var got pageFacts
		if err := got.replay(written(page, calls)); err != nil {
			t.Fatal(err)
		}
		if got != *applied(calls) {
			t.Fatal("the log tells another story than the events")
		}
	})
}

func TestASnapshotIsTheSameFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOf(rapid.SliceOfN(anyEvent, 1, 20)).Draw(t, "before")
		after := rapid.SliceOf(rapid.SliceOfN(anyEvent, 1, 20)).Draw(t, "after")
		log := append(applied(before).snapshot(), written(0, after)...)
		var got pageFacts
		if err := got.replay(log); err != nil {
			t.Fatal(err)
		}
		if touched(got) != touched(*applied(slices.Concat(before, after))) {
			t.Fatal("a snapshot and what follows it tell another story than the events")
		}
	})
}

func TestARunOfNeighboursIsOneRecord(t *testing.T) {
	w := jobWriter{page: 7}
	for index := range uint32(100) {
		w.add(evLeased, 7<<pageBits|100+index, 0)
	}
	w.flush()
	if len(w.log) > 10 {
		t.Errorf("leasing a hundred jobs in order wrote %d bytes", len(w.log))
	}
	var facts pageFacts
	if err := facts.replay(w.log); err != nil {
		t.Fatal(err)
	}
	for i, j := range facts.jobs {
		if leased := i >= 100 && i < 200; (j.phase == inFlight) != leased {
			t.Fatalf("job %d is in phase %d", i, j.phase)
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	for name, log := range map[string][]byte{
		"no such event":          {0, 0, 1},
		"an event to come":       {byte(evSnapshot) + 1, 0, 1},
		"no job":                 {byte(evLeased)},
		"no number of jobs":      {byte(evLeased), 0},
		"no argument":            {byte(evLent), 0, 1},
		"beyond the page":        {byte(evLeased), 0xff, 0x07, 2},
		"far beyond the page":    {byte(evLeased), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 2},
		"half a snapshot":        (&pageFacts{}).snapshot()[:500],
		"a snapshot of no phase": append([]byte{byte(evSnapshot), 0, 0, byte(canceled) + 1}, make([]byte, pageSize)...),
	} {
		var facts pageFacts
		if err := facts.replay(log); err == nil {
			t.Errorf("%s: the log is taken", name)
		}
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte{})
	f.Add(written(0, [][]noted{{{evLeased, 0, 0}, {evLeased, 1, 0}, {evSucceeded, 0, 0}, {evThrottled, 1, 1 << 40}}}))
	f.Add(applied([][]noted{{{evLent, 3, 5}, {evFailed, 3, 0}, {evCrashed, 1023, 0}}}).snapshot())
	f.Add([]byte{byte(evLeased), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 2})
	f.Fuzz(func(t *testing.T, log []byte) {
		var facts, again pageFacts
		if facts.replay(log) != nil {
			return
		}
		if err := again.replay(facts.snapshot()); err != nil || again != touched(facts) {
			t.Fatalf("the snapshot of a log that was taken is another, error %v", err)
		}
	})
}
