package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

var logCases = []testCase{
	{"a new log is empty", func(k *kit) {
		l := k.log("new")
		k.ends(l, 1, 0)
		for _, from := range []uint64{0, 1, 2, 1 << 40} {
			got, err := l.Read(k.ctx, from, 1<<20)
			k.must(err)
			k.must(same(got, nil))
		}
	}},
	{"a log opened twice is one log", func(k *kit) {
		one, two := k.log("shared"), k.log("shared")
		k.mustAppend(one, entry(1, 10))
		k.mustAppend(two, entry(2, 10))
		k.holds(one, entries(1, 2, 10)...)
		k.holds(two, entries(1, 2, 10)...)
	}},
	{"logs have their own entries, whatever their names", func(k *kit) {
		names := []string{"a", "b", "-", "_", "a-", "a_", "0", "log-a", "log", "meta", strings.Repeat("x", 200), strings.Repeat("y", 199) + "-"}
		for i, name := range names {
			k.mustAppend(k.log(name), entry(1, i))
		}
		for i, name := range names {
			k.holds(k.log(name), entry(1, i))
		}
	}},
	{"a deleted log is gone", func(k *kit) {
		old, other := k.log("gone"), k.log("stays")
		k.mustAppend(old, entries(1, 3, 10)...)
		k.mustAppend(other, entry(1, 10))
		k.must(k.store.DeleteLog(k.ctx, "gone"))
		isGone(k, old)
		k.holds(other, entry(1, 10))
		again := k.log("gone")
		k.ends(again, 1, 0)
		k.mustAppend(again, entry(1, 20))
		k.holds(again, entry(1, 20))
		// The name exists again, but the log that was opened before does not.
		isGone(k, old)
	}},
	{"to delete a log that does not exist is no error", func(k *kit) {
		k.must(k.store.DeleteLog(k.ctx, "never"))
		k.log("twice")
		k.must(k.store.DeleteLog(k.ctx, "twice"))
		k.must(k.store.DeleteLog(k.ctx, "twice"))
	}},
	{"a log that is missing is made only on nodes", func(k *kit) {
		_, err := k.store.OpenLog(k.ctx, "missing", nil)
		k.is(err, topic.ErrNoLog)
		_, err = k.store.MakeLog(k.ctx, "missing", nil, 7)
		k.is(err, topic.ErrNoLog)
		k.mustAppend(k.log("missing"), entry(1, 1))
		_, err = k.store.OpenLog(k.ctx, "missing", nil)
		k.must(err)
		k.must(k.store.DeleteLog(k.ctx, "missing"))
		_, err = k.store.OpenLog(k.ctx, "missing", nil)
		k.is(err, topic.ErrNoLog)
	}},
	{"a closed store takes no appends", func(k *kit) {
		l := k.log("closed")
		k.mustAppend(l, entry(1, 1))
		k.must(k.store.Close())
		k.is(k.append(l, entry(2, 1))[0], topic.ErrClosed)
		_, err := k.store.OpenLog(k.ctx, "closed", nil)
		k.is(err, topic.ErrClosed)
	}},
}

// isGone checks that all calls on a deleted log return ErrNoLog.
func isGone(k *kit, l topic.Log) {
	k.t.Helper()
	k.is(k.append(l, entry(4, 1))[0], topic.ErrNoLog)
	_, err := l.Read(k.ctx, 1, 1)
	k.is(err, topic.ErrNoLog)
	_, _, err = l.Ends(k.ctx)
	k.is(err, topic.ErrNoLog)
	k.is(l.Trim(k.ctx, 2), topic.ErrNoLog)
	k.is(l.Wait(k.ctx, 1), topic.ErrNoLog)
}

var appendCases = []testCase{
	{"an entry comes back as it was", func(k *kit) {
		l := k.log("whole")
		none := topic.Entry{Sequence: 2, Mark: topic.Mark{MaxTimestamp: topic.NoTimestamp}, Data: []byte{}}
		largest := entry(3, 100)
		largest.Mark = largestMark
		every := entry(4, 256)
		every.Sum = 0
		for i := range every.Data {
			every.Data[i] = byte(i)
		}
		all := []topic.Entry{entry(1, 1), none, largest, every, entry(5, 1<<20), entry(6, 7<<20)}
		k.mustAppend(l, all...)
		k.holds(l, all...)
	}},
	{"the memory of a durable entry is free for something else", func(k *kit) {
		l := k.log("free")
		all := []topic.Entry{entry(1, 10), entry(2, 1<<20), entry(3, 10)}
		for _, e := range all {
			e.Data = bytes.Clone(e.Data)
			k.mustAppend(l, e)
			clear(e.Data)
		}
		k.holds(l, all...)
	}},
	{"dones come in the order of the appends", func(k *kit) {
		l := k.log("order")
		all := entries(1, 300, 50)
		k.mustAppend(l, all...)
		k.holds(l, all...)
		k.ends(l, 1, 300)
	}},
	{"done comes from another goroutine", func(k *kit) {
		l := k.log("other")
		for _, sequence := range []uint64{1, 2, 9} { // the last is fenced
			var caller sync.Mutex
			came := make(chan struct{})
			returned := make(chan struct{})
			go func() {
				caller.Lock()
				l.Append(entry(sequence, 10), func(error) {
					caller.Lock()
					defer caller.Unlock()
					close(came)
				})
				caller.Unlock()
				close(returned)
			}()
			for _, c := range []chan struct{}{returned, came} {
				select {
				case <-c:
				case <-time.After(patience):
					k.t.Fatal("append calls done before it returns")
				}
			}
		}
	}},
	{"done may append", func(k *kit) {
		l := k.log("chain")
		finished := make(chan error, 1)
		var next func(sequence uint64)
		next = func(sequence uint64) {
			l.Append(entry(sequence, 10), func(err error) {
				if err != nil || sequence == 50 {
					finished <- err
					return
				}
				next(sequence + 1)
			})
		}
		next(1)
		select {
		case err := <-finished:
			k.must(err)
		case <-time.After(patience):
			k.t.Fatal("an append from done is not reported")
		}
		k.holds(l, entries(1, 50, 10)...)
	}},
	{"the data may be changed once done was called", func(k *kit) {
		l := k.log("reuse")
		e := entry(1, 1000)
		k.mustAppend(l, e)
		clear(e.Data)
		k.holds(l, entry(1, 1000))
	}},
	{"large entries may be under way together", func(k *kit) {
		l := k.log("large")
		all := entries(1, 12, 1<<20)
		k.mustAppend(l, all...)
		k.holds(l, all...)
	}},
}

var fenceCases = []testCase{
	{"a sequence that does not follow is fenced", func(k *kit) {
		l := k.log("fence")
		for last := range uint64(4) {
			for sequence := range uint64(7) {
				if sequence == last+1 {
					continue
				}
				k.is(k.append(l, entry(sequence, 5))[0], topic.ErrFenced)
				k.ends(l, 1, last)
			}
			k.mustAppend(l, entry(last+1, 5))
		}
		k.holds(l, entries(1, 4, 5)...)
	}},
	{"after a gap all are fenced", func(k *kit) {
		l := k.log("gap")
		errs := k.append(l, entry(1, 5), entry(2, 5), entry(4, 5), entry(5, 5), entry(6, 5))
		for i, err := range errs {
			if i < 2 {
				k.must(err)
			} else {
				k.is(err, topic.ErrFenced)
			}
		}
		k.holds(l, entries(1, 2, 5)...)
		k.mustAppend(l, entry(3, 5))
	}},
	{"the fence does not depend on what was trimmed", func(k *kit) {
		l := k.log("trimmed")
		k.mustAppend(l, entries(1, 5, 5)...)
		k.must(l.Trim(k.ctx, 6))
		k.is(k.append(l, entry(1, 5))[0], topic.ErrFenced)
		k.is(k.append(l, entry(5, 5))[0], topic.ErrFenced)
		k.mustAppend(l, entry(6, 5))
	}},
	{"of two that append the same sequence, one is fenced", func(k *kit) {
		l := [2]topic.Log{k.log("race"), k.log("race")}
		var want []topic.Entry
		for sequence := uint64(1); sequence <= 50; sequence++ {
			outcome := make(chan error, 2)
			tried := [2]topic.Entry{entry(sequence, 100), entry(sequence, 101)}
			for i := range l {
				go l[i].Append(tried[i], func(err error) { outcome <- err })
			}
			var errs []error
			for range l {
				errs = append(errs, <-outcome)
			}
			won := slices.Index(errs, nil)
			if won < 0 || errs[1-won] == nil {
				k.t.Fatalf("sequence %d: outcomes are %v", sequence, errs)
			}
			got, err := l[0].Read(k.ctx, sequence, 1)
			k.must(err)
			if len(got) != 1 || same(got, tried[:1]) != nil && same(got, tried[1:]) != nil {
				k.t.Fatal(fmt.Errorf("sequence %d: read %v", sequence, got))
			}
			want = append(want, got[0])
		}
		k.holds(l[0], want...)
	}},
}
