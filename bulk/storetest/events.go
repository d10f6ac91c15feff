package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var eventCases = []testCase{
	{"each transition of an action leaves one event", false, eventsOfActions},
	{"a canceled action tells when it is drained", false, eventsOfCancel},
	{"jobs leave events where their action asks", false, eventsOfJobs},
	{"a large result is left out", false, eventsLargeResult},
	{"events come again until they are confirmed", false, eventsConfirmed},
	{"a store that was not told keeps none", false, eventsNotKept},
	{"events are published while others come", false, eventsConcurrent},
	{"too many events hold back what would bring more", false, eventsBound},
	{"events survive a restart", true, eventsSurvive},
	{"a job that dies with the process leaves an event", true, eventsOfCrash},
}

func (k *kit) keepEvents(most int64) {
	k.t.Helper()
	k.most = most
	k.must(k.store.KeepEvents(ctx, most*int64(max(1, k.factory.Shards))))
}

// events reads the outbox to its end, and confirms the events.
func (k *kit) events() (all []bulk.Event) {
	k.t.Helper()
	ids := map[string]bool{}
	for {
		waiting := k.backlog()
		some, upTo, err := k.store.Events(ctx)
		k.must(err)
		k.check(waiting.Outbox >= int64(len(some)) && (waiting.Outbox == 0) == (len(some) == 0), "%d events are returned, %d wait", len(some), waiting.Outbox)
		if len(some) == 0 {
			k.check(waiting.OldestEvent.IsZero(), "no event waits, but the oldest is of %v", waiting.OldestEvent)
			return all
		}
		k.check(k.near(waiting.OldestEvent, some[0].Time), "the oldest event is of %v, want %v", waiting.OldestEvent, some[0].Time)
		k.must(k.store.Published(ctx, upTo))
		for _, e := range some {
			k.check(!ids[e.ID], "event %s of %s comes again after it was confirmed", e.ID, e.Subject)
			ids[e.ID] = true
		}
		all = append(all, some...)
	}
}

// short returns the last word of each event's type, with the subject of jobs.
func short(events []bulk.Event) string {
	var words []string
	for _, e := range events {
		word := e.Type[strings.LastIndexByte(e.Type, '.')+1:]
		if e.Subject != e.Action {
			word += " " + e.Subject
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func (k *kit) expectEvents(events []bulk.Event, want string) {
	k.t.Helper()
	k.check(short(events) == want, "events: %s\nwant:   %s", short(events), want)
}

func (k *kit) decode(e bulk.Event) (data map[string]any) {
	k.t.Helper()
	k.must(json.Unmarshal(e.Data, &data))
	return data
}

func eventsOfActions(k *kit) {
	k.open(unlimited())
	k.keepEvents(1000)
	k.run(aggregated("a"), 2)
	_, _, err := k.store.Create(ctx, aggregated("a")) // exists: nothing happens
	k.must(err)
	for _, kind := range []bulk.TransitionKind{bulk.Start, bulk.Pause, bulk.Pause, bulk.Resume, bulk.Resume} {
		k.transition("a", bulk.Transition{Kind: kind})
	}
	k.succeed(k.take(2)...)
	k.advance(time.Second)
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.transition("a", bulk.Transition{Kind: bulk.Reduce, Reduced: k.action("a").Batches, Partial: []byte("p")})
	k.advance(time.Second)
	k.transition("a", bulk.Transition{Kind: bulk.Complete, Result: map[string]json.RawMessage{"count": json.RawMessage("2")}})
	_, err = k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Cancel}) // refused: nothing happens
	k.expectRefusal(err, "Cancel of a completed action")
	events := k.events()
	k.expectEvents(events, "created, dispatched, running, paused, resumed, aggregating, completed")
	ids := map[string]bool{}
	for i, e := range events {
		data := k.decode(e)
		k.check(e.ID != "" && !ids[e.ID], "event %d has the id %q, which another has", i, e.ID)
		ids[e.ID] = true
		k.check(e.Action == "a" && e.Subject == "a" && e.Tenant == aggregated("a").Tenant && data["id"] == "a", "event %d is %+v", i, e)
	}
	k.check(k.near(events[6].Time, time.Now()), "completed at %v, want %v", events[6].Time, time.Now())
	for i, want := range []string{"CREATED", "DISPATCHED", "RUNNING", "RUNNING", "RUNNING", "AGGREGATING", "COMPLETED"} {
		k.check(k.decode(events[i])["status"] == want, "event %d says %v, want %s", i, k.decode(events[i])["status"], want)
	}
	k.check(k.decode(events[3])["paused"] == true && k.decode(events[4])["paused"] == false, "paused and resumed do not say so")
	last := k.decode(events[6])
	k.check(last["succeeded"] == 2.0 && fmt.Sprint(last["result"]) == "map[count:2]", "the last event says %s", events[6].Data)
}

func eventsOfCancel(k *kit) {
	k.open(unlimited())
	k.keepEvents(1000)
	k.run(spec("idle", "tenant"), 2)
	k.transition("idle", bulk.Transition{Kind: bulk.Cancel})
	k.transition("idle", bulk.Transition{Kind: bulk.Drained})
	k.expectEvents(k.events(), "created, dispatched, running, canceled")
	s := spec("busy", "tenant")
	s.Events = []string{bulk.JobEvents}
	k.run(s, 5)
	jobs := k.take(3)
	k.transition("busy", bulk.Transition{Kind: bulk.Cancel})
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow}, jobs[1]) // canceled, and no event
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood}, jobs[2])
	k.transition("busy", bulk.Transition{Kind: bulk.Drained})
	k.transition("busy", bulk.Transition{Kind: bulk.Forget})
	events := k.events()
	k.expectEvents(events, "created, dispatched, running, canceled, succeeded busy-0, failed busy-2, drained")
	k.check(k.decode(events[3])["in_flight"] == 3.0 && k.decode(events[6])["canceled"] == 3.0, "the counts are not those of the moves: %s", events[6].Data)
}

func eventsOfJobs(k *kit) {
	k.open(unlimited())
	k.keepEvents(1000)
	k.run(spec("quiet", "tenant"), 2)
	k.succeed(k.take(2)...)
	s := spec("told", "tenant")
	s.Events, s.MaxAttempts = []string{bulk.JobEvents}, 2
	k.run(s, 5)
	k.events()
	jobs := k.take(5)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second, Error: "once"}, jobs[2], jobs[3], jobs[4])
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: []byte(`{"n": 1.50, "t":"<&>"}`)}, jobs[1])
	k.verdicts(bulk.Settlement{Kind: bulk.Succeeded}, jobs[1]) // a duplicate
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "no ü"}, jobs[0])
	k.advance(2 * time.Second)
	k.dispatch(9)
	jobs = k.take(3)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, Error: "twice"}, jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: []byte("not \xff JSON"), Error: "not mapped"}, jobs[1])
	k.advance(time.Hour)
	k.dispatch(9) // the last lease expires in the last attempt
	events := k.events()
	k.expectEvents(events, "succeeded told-1, failed told-0, failed told-2, succeeded told-3, failed told-4")
	for i, want := range []string{
		`{"id":"told-1","action":"told","tenant":"tenant","index":1,"status":"succeeded","attempts":1,"result":{"n":1.50,"t":"<&>"},"error":"","finished_at":`,
		`{"id":"told-0","action":"told","tenant":"tenant","index":0,"status":"failed","attempts":1,"result":null,"error":"no ü","finished_at":`,
		`{"id":"told-2","action":"told","tenant":"tenant","index":2,"status":"failed","attempts":2,"result":null,"error":"twice","finished_at":`,
		`{"id":"told-3","action":"told","tenant":"tenant","index":3,"status":"succeeded","attempts":2,"result":"not ` + "\uFFFD" + ` JSON","error":"not mapped","finished_at":`,
	} {
		k.check(strings.HasPrefix(string(events[i].Data), want), "event %d says\n%s, want\n%s", i, events[i].Data, want)
	}
	k.check(k.decode(events[4])["error"] != "", "a job that failed does not say why: %s", events[4].Data)
	k.check(events[0].Action == "told" && events[0].Tenant == "tenant", "event of a job: %+v", events[0])
}

func eventsLargeResult(k *kit) {
	k.open(unlimited())
	k.keepEvents(1000)
	s := spec("a", "tenant")
	s.Events = []string{bulk.JobEvents}
	k.run(s, 3)
	k.events()
	jobs := k.take(3)
	exactly := []byte(`"` + strings.Repeat("x", bulk.MaxEventResult-2) + `"`)
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: exactly}, jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: append(exactly, ' ')}, jobs[1])
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, ResultTruncated: true}, jobs[2])
	events := k.events()
	k.expectEvents(events, "succeeded a-0, succeeded a-1, succeeded a-2")
	kept := k.decode(events[0])
	k.check(len(kept["result"].(string)) == bulk.MaxEventResult-2 && kept["result_truncated"] == nil, "a result of the largest size is not kept")
	for _, e := range events[1:] {
		cut := k.decode(e)
		k.check(cut["result"] == nil && cut["result_truncated"] == true, "a larger result: %.300s", e.Data)
	}
}

func eventsConfirmed(k *kit) {
	k.open(unlimited())
	k.keepEvents(10_000)
	read, upTo, err := k.store.Events(ctx)
	k.must(err)
	k.must(k.store.Published(ctx, upTo))
	k.check(len(read) == 0, "an empty outbox returned %s", short(read))
	s := spec("a", "tenant")
	s.Events = []string{bulk.JobEvents}
	k.run(s, 1500)
	k.succeed(k.take(1500)...)
	var want []string
	for range 3 {
		again, _, err := k.store.Events(ctx)
		k.must(err)
		if read != nil {
			k.check(slices.EqualFunc(again[:len(read)], read, sameEvent), "events that were not confirmed have changed: %s, then %s", short(read), short(again))
		}
		read = again
		k.create(spec(fmt.Sprint("b", len(want)), "tenant"))
		want = append(want, "created")
	}
	for i := range 1500 {
		want = append(want, fmt.Sprint("succeeded a-", i))
	}
	events := k.events()
	k.check(len(events) == 3+len(want), "%d events, want %d", len(events), 3+len(want))
	of := slices.DeleteFunc(slices.Clone(events), func(e bulk.Event) bool { return e.Action != "a" })
	k.expectEvents(of, strings.Join(append([]string{"created, dispatched, running"}, want[3:]...), ", "))
	k.create(spec("c", "tenant"))
	k.must(k.store.Published(ctx, 1)) // confirmed long ago
	k.expectEvents(k.events(), "created")
}

func eventsConcurrent(k *kit) {
	const actions = 900
	k.open(unlimited())
	k.keepEvents(1 << 40)
	s := k.store
	var failed error
	var all sync.WaitGroup
	all.Go(func() {
		for i := range actions {
			_, _, err := s.Create(ctx, spec(fmt.Sprint(i), "tenant"))
			failed = errors.Join(failed, err)
		}
	})
	for seen := 0; seen < actions; {
		events, upTo, err := s.Events(ctx)
		k.must(err)
		for i, e := range events {
			k.check(e.Action == fmt.Sprint(seen+i), "the event of %s comes, want that of %d", e.Action, seen+i)
		}
		k.must(s.Published(ctx, upTo))
		if seen += len(events); len(events) == 0 {
			runtime.Gosched() // the clock stands still while any goroutine runs
		}
	}
	all.Wait()
	k.must(failed)
	k.check(k.backlog().Outbox == 0, "%d events wait after all were published", k.backlog().Outbox)
}

func sameEvent(x, y bulk.Event) bool { return fmt.Sprint(x) == fmt.Sprint(y) }

func eventsNotKept(k *kit) {
	k.open(unlimited())
	s := spec("a", "tenant")
	s.Events = []string{bulk.JobEvents}
	k.run(s, 2)
	k.succeed(k.takeOne())
	k.check(len(k.events()) == 0, "events were kept before KeepEvents")
	k.keepEvents(1000)
	k.succeed(k.takeOne())
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.keepEvents(0)
	k.transition("a", bulk.Transition{Kind: bulk.Complete})
	k.create(spec("b", "tenant"))
	k.expectEvents(k.events(), "succeeded a-1, aggregating")
}

func eventsBound(k *kit) {
	k.open(unlimited())
	k.keepEvents(6)
	s := spec("told", "tenant")
	s.Events = []string{bulk.JobEvents}
	k.create(s)
	k.create(spec("quiet", "tenant"))
	k.run(spec("runs", "tenant"), 4)
	k.transition("runs", bulk.Transition{Kind: bulk.Pause}) // the sixth
	_, _, err := k.store.Create(ctx, spec("new", "tenant"))
	k.check(errors.Is(err, bulk.ErrFull), "Create with a full outbox: %v, want ErrFull", err)
	_, err = k.store.Append(ctx, "told", 0, [][]byte{payload("told", 0)})
	k.check(errors.Is(err, bulk.ErrFull), "Append of jobs that bring events: %v, want ErrFull", err)
	_, err = k.store.Transition(ctx, "runs", bulk.Transition{Kind: bulk.Resume})
	k.check(errors.Is(err, bulk.ErrFull) && k.action("runs").Paused, "Resume with a full outbox: %v, want ErrFull", err)
	_, created, err := k.store.Create(ctx, s) // exists
	k.check(err == nil && !created, "Create of what exists, with a full outbox: %v", err)
	k.upload("quiet", 2)
	k.transition("quiet", bulk.Transition{Kind: bulk.Seal, Total: 2})
	k.transition("quiet", bulk.Transition{Kind: bulk.Start})
	k.succeed(k.take(2)...)
	k.transition("quiet", bulk.Transition{Kind: bulk.Aggregate})
	k.transition("told", bulk.Transition{Kind: bulk.Cancel})
	k.check(k.backlog().Outbox == 10, "%d events wait, want all 10", k.backlog().Outbox)
	k.events()
	k.transition("runs", bulk.Transition{Kind: bulk.Resume})
	k.create(spec("new", "tenant"))
	k.expectEvents(k.events(), "resumed, created")
}

func eventsSurvive(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.keepEvents(1000)
		seen := map[string]string{}
		s := spec("a", "tenant")
		s.Events = []string{bulk.JobEvents}
		k.run(s, 20)
		for range 10 {
			k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: []byte("7")}, k.take(2)...)
			before, upTo, err := k.store.Events(ctx)
			k.must(err)
			restart()
			after, _, err := k.store.Events(ctx)
			k.must(err)
			k.check(slices.EqualFunc(before, after, sameEvent), "events changed by a restart: %v, want %v", after, before)
			k.must(k.store.Published(ctx, upTo))
			for _, e := range before {
				k.check(seen[e.ID] == "", "event %s is of %s, and was of %s", e.ID, e.Subject, seen[e.ID])
				seen[e.ID] = e.Subject
			}
			restart()
			again, _, err := k.store.Events(ctx)
			k.must(err)
			for _, e := range again {
				k.check(seen[e.ID] == "", "event %s of %s comes again after a restart", e.ID, e.Subject)
			}
		}
		for _, e := range k.events() {
			seen[e.ID] = e.Subject
		}
		k.check(len(seen) == 23, "%d events, want 23", len(seen))
	})
}

func eventsOfCrash(k *kit) {
	config := unlimited()
	config.MaxCrashes = 1
	k.eachRestart(config, func(restart func()) {
		k.keepEvents(1000)
		s := spec("a", "tenant")
		s.Events = []string{bulk.JobEvents}
		k.run(s, 2)
		k.events()
		k.admitAll()
		r := request(1)
		r.Local = true
		k.leaseAs(r)
		restart()
		k.expectEvents(k.events(), "failed a-0")
		k.keepEvents(0)
		k.admitAll()
		k.leaseAs(r)
		restart()
		k.check(k.action("a").Failed == 2, "the second job is not dead")
		k.expectEvents(k.events(), "")
	})
}
