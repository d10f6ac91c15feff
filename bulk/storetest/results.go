package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var resultCases = []testCase{
	{"every done job is in one batch of outcomes", false, outcomesOnce},
	{"outcomes keep what was settled", false, outcomesKept},
	{"nothing is recorded where nothing is aggregated", false, outcomesNone},
	{"outcomes survive a restart", true, outcomesSurvive},
	{"dead letters are paged by index", false, deadPaged},
	{"a page of dead letters is bounded in bytes", false, deadBytes},
	{"dead letters keep what failed", false, deadKept},
	{"a long error is cut", false, deadCut},
	{"dead letters stay until they are replayed or forgotten", false, deadStay},
}

// outcomes reads all batches of an action.
func (k *kit) outcomes(id string) (all []bulk.Outcome) {
	k.t.Helper()
	a := k.action(id)
	batches := a.Batches
	for after := a.Reduced; ; {
		some, upTo, err := k.store.Outcomes(ctx, id, after)
		k.must(err)
		if upTo == after {
			k.check(len(some) == 0, "%d outcomes of %s from batch %d on, but none read up to", len(some), id, after)
			k.check(after == batches, "%s has %d batches of outcomes, but counts %d", id, after, batches)
			return all
		}
		k.check(upTo > after && upTo <= batches && len(some) > 0, "%s has %d outcomes in batches %d to %d of %d", id, len(some), after, upTo, batches)
		all, after = append(all, some...), upTo
	}
}

func outcomesOnce(k *kit) {
	k.open(unlimited())
	k.run(aggregated("a"), 40)
	k.run(aggregated("b"), 40)
	var earlier []bulk.Outcome
	kinds := []bulk.SettlementKind{bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.Throttled, bulk.Released}
	for round := range 60 {
		k.admitAll()
		jobs := k.lease(1 + round%9)
		var settlements []bulk.Settlement
		for i, j := range jobs {
			kind := kinds[(round+i)%len(kinds)]
			settlements = append(settlements, bulk.Settlement{Lease: j.Lease, Kind: kind}, bulk.Settlement{Lease: j.Lease, Kind: bulk.Succeeded})
		}
		_, err := k.store.Settle(ctx, settlements)
		k.must(err)
		k.advance(10 * time.Second)
		k.dispatch(100)
		outcomes := k.outcomes("a")
		k.check(sameStart(outcomes, earlier), "batches that were read before have changed")
		earlier = outcomes
		for _, id := range []string{"a", "b"} {
			k.checkOutcomes(id)
		}
	}
	a, b := k.action("a"), k.action("b")
	k.check(a.Done()+b.Done() > 60, "few jobs were done")
}

func sameStart(all, start []bulk.Outcome) bool {
	return len(all) >= len(start) && slices.EqualFunc(all[:len(start)], start, func(x, y bulk.Outcome) bool { return x.Index == y.Index })
}

// checkOutcomes checks that an action's outcomes are those of its finished jobs, once each.
func (k *kit) checkOutcomes(id string) {
	k.t.Helper()
	seen := map[int64]bool{}
	succeeded, failed := int64(0), int64(0)
	for _, o := range k.outcomes(id) {
		k.check(!seen[o.Index], "the outcome of %s is recorded twice", bulk.JobID(id, o.Index))
		seen[o.Index] = true
		if o.Succeeded {
			succeeded++
		} else {
			failed++
		}
	}
	a := k.action(id)
	if a.Reduced > 0 {
		return // the first batches may be deleted
	}
	c := a.Counts
	k.check(succeeded == c.Succeeded && failed == c.Failed, "%s: outcomes of %d succeeded and %d failed jobs, want %d and %d", id, succeeded, failed, c.Succeeded, c.Failed)
}

func outcomesKept(k *kit) {
	k.open(unlimited())
	k.run(aggregated("a"), 4)
	jobs := k.take(4)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second}, jobs[3])
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Values: []byte("\x00values\xff"), Took: 1234567 * time.Nanosecond}, jobs[1])
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Error: "not mapped"}, jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "no such ü", Took: time.Hour}, jobs[2])
	k.advance(2 * time.Second)
	k.dispatch(9)
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Values: bytes.Repeat([]byte("v"), 70_000), Took: time.Second}, k.takeOne())
	want := []bulk.Outcome{
		{Index: 1, Succeeded: true, Attempts: 1, Took: 1234567 * time.Nanosecond, Values: []byte("\x00values\xff")},
		{Index: 0, Succeeded: true, Attempts: 1, Error: "not mapped"},
		{Index: 2, Attempts: 1, Took: time.Hour, Error: "no such ü"},
		{Index: 3, Succeeded: true, Attempts: 2, Took: time.Second, Values: bytes.Repeat([]byte("v"), 70_000)},
	}
	got := k.outcomes("a")
	k.check(len(got) == len(want), "%d outcomes, want %d", len(got), len(want))
	for i, o := range got {
		o.Took = o.Took.Truncate(time.Microsecond)
		want[i].Took = want[i].Took.Truncate(time.Microsecond)
		equal := bytes.Equal(o.Values, want[i].Values)
		o.Values, want[i].Values = nil, nil
		k.check(equal && fmt.Sprint(o) == fmt.Sprint(want[i]), "outcome %+v, want %+v, values equal: %v", o, want[i], equal)
	}
}

func outcomesNone(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 3)
	jobs := k.take(3)
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Values: []byte("x")}, jobs[:2]...)
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[2])
	k.check(len(k.outcomes("a")) == 0 && k.action("a").Batches == 0, "outcomes were recorded")
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.transition("a", bulk.Transition{Kind: bulk.Complete})
}

func outcomesSurvive(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.run(aggregated("a"), 30)
		for round := range 10 {
			jobs := k.take(3)
			k.settle(bulk.Settlement{Kind: bulk.Succeeded, Values: fmt.Appendf(nil, "v%d", round)}, jobs[0], jobs[1])
			k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: fmt.Sprint(round)}, jobs[2])
			before := k.outcomes("a")
			restart()
			k.check(fmt.Sprint(k.outcomes("a")) == fmt.Sprint(before), "outcomes changed by a restart: %v, want %v", k.outcomes("a"), before)
			k.checkOutcomes("a")
		}
		k.expect("a", where{Succeeded: 20, Failed: 10})
	})
}

// fail makes dead letters of the jobs of an action whose indexes are listed.
func (k *kit) fail(id string, n int, failed ...int64) {
	k.t.Helper()
	k.run(spec(id, "tenant"), n)
	jobs := k.take(n)
	slices.Reverse(jobs)
	for _, j := range jobs {
		if slices.Contains(failed, j.Index) {
			k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: fmt.Sprint("error ", j.Index)}, j)
		} else {
			k.succeed(j)
		}
	}
}

func (k *kit) expectDead(id string, from int64, limit int, want ...int64) {
	k.t.Helper()
	dead, err := k.store.DeadLetters(ctx, id, from, limit)
	k.must(err)
	got := []int64{}
	for _, d := range dead {
		got = append(got, d.Index)
		k.check(d.Action == id && string(d.Payload) == string(payload(id, d.Index)), "dead letter %d of %s has action %q and payload %q", d.Index, id, d.Action, d.Payload)
	}
	k.check(slices.Equal(got, want), "dead letters of %s from %d, at most %d: %v, want %v", id, from, limit, got, want)
}

// deadPaged has ids and indexes whose order as text differs, and an id that is a prefix of
// another.
func deadPaged(k *kit) {
	k.open(unlimited())
	k.fail("a", 300, 2, 9, 10, 100, 255, 256, 299)
	k.fail("a-1", 5, 0, 4)
	k.expectDead("a", 0, 100, 2, 9, 10, 100, 255, 256, 299)
	k.expectDead("a", 0, 3, 2, 9, 10)
	k.expectDead("a", 10, 2, 10, 100)
	k.expectDead("a", 11, 2, 100, 255)
	k.expectDead("a", 256, 100, 256, 299)
	k.expectDead("a", 300, 100)
	k.expectDead("a-1", 0, 1, 0)
	k.expectDead("a-1", 1, 10, 4)
	k.fail("b", 3)
	k.expectDead("b", 0, 10)
}

func deadBytes(k *kit) {
	k.open(unlimited())
	const jobs = 12
	large := bytes.Repeat([]byte("x"), bulk.MaxPayloadBytes)
	k.create(spec("a", "tenant"))
	k.append("a", slices.Concat(slices.Repeat([][]byte{[]byte("1")}, 2), slices.Repeat([][]byte{large}, jobs-2))...)
	k.start("a")
	for done := 0; done < jobs; {
		leased := k.leasePage(request(jobs))
		k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: strings.Repeat("e", bulk.MaxErrorBytes)}, leased...)
		done += len(leased)
	}
	read := int64(0)
	for pages := 0; ; pages++ {
		page, err := k.store.DeadLetters(ctx, "a", read, 1000)
		k.must(err)
		if len(page) == 0 {
			k.check(pages == 2, "%d pages, want 2", pages)
			break
		}
		size := 0
		for _, letter := range page {
			k.check(letter.Index == read, "dead letter %d follows %d", letter.Index, read-1)
			k.check(size < bulk.MaxPageBytes, "a page goes on after %d bytes of payloads", size)
			size, read = size+len(letter.Payload), read+1
		}
		k.check(size >= bulk.MaxPageBytes || read == jobs, "a page ends before job %d with %d bytes, and there are more", read, size)
	}
	k.check(read == jobs, "%d dead letters were read, want %d", read, jobs)
}

func deadKept(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 2)
	jobs := k.take(2)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second}, jobs[0])
	k.advance(2 * time.Second)
	k.dispatch(9)
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "no ü"}, k.takeOne())
	failed := time.Now()
	k.advance(time.Minute)
	dead, err := k.store.DeadLetters(ctx, "a", 0, 10)
	k.must(err)
	k.check(len(dead) == 1, "%d dead letters, want 1", len(dead))
	k.check(dead[0].Error == "no ü" && dead[0].Attempts == 2 && k.near(dead[0].FailedAt, failed), "dead letter %+v, want error no ü, 2 attempts, failed at %v", dead[0], failed)
}

func deadCut(k *kit) {
	k.open(unlimited())
	long := strings.Repeat("0123456789", bulk.MaxErrorBytes)
	k.run(aggregated("a"), 1)
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: long}, k.takeOne())
	dead, err := k.store.DeadLetters(ctx, "a", 0, 10)
	k.must(err)
	for what, text := range map[string]string{"dead letter": dead[0].Error, "outcome": k.outcomes("a")[0].Error} {
		k.check(text == long[:bulk.MaxErrorBytes], "the %s keeps %d bytes of the error, want the first %d", what, len(text), bulk.MaxErrorBytes)
	}
}

func deadStay(k *kit) {
	k.open(unlimited())
	k.fail("a", 8, 1, 3, 5, 7)
	_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Replayed, Total: 4})
	k.expectRefusal(err, "Replayed of a running action")
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.expectDead("a", 0, 10, 1, 3, 5, 7)
	k.transition("a", bulk.Transition{Kind: bulk.Complete})
	k.expectDead("a", 0, 10, 1, 3, 5, 7)
	a := k.transition("a", bulk.Transition{Kind: bulk.Replayed, Total: 5})
	k.check(a.Replays == 1 && a.Failed == 4, "replayed: %d replays and %d failed, want 1 and 4", a.Replays, a.Failed)
	k.expectDead("a", 0, 10, 5, 7)
	if k.factory.Reopen != nil {
		k.reopen()
		k.expectDead("a", 0, 10, 5, 7)
	}
	_, err = k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Replayed, Total: 8})
	k.check(errors.Is(err, bulk.ErrNoChange), "Replayed for the first time again: %v, want ErrNoChange", err)
	k.expectDead("a", 0, 10, 5, 7)
	k.transition("a", bulk.Transition{Kind: bulk.Replayed, Total: 8, From: 1})
	k.expectDead("a", 0, 10)
	k.check(k.action("a").Replays == 2, "%d replays, want 2", k.action("a").Replays)
}

// containsFold reports whether a text contains all words, ignoring case.
func containsFold(text string, words ...string) bool {
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
