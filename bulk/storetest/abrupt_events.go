package storetest

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"

	"github.com/sluice-project/sluice/bulk"
)

// toldEvents has what callers know of events before a crash.
type toldEvents struct {
	sync.Mutex
	settled   map[string]bool   // jobs whose settlement was answered, with no event seen
	events    map[string]string // the returned events, by id: the subject
	confirmed map[string]bool   // ids for which Published was answered
	maybe     map[string]bool   // ids for which Published was called
	failures  []error           // of Published
}

// crashEventsAmidst crashes the store while a crowd works and a publisher reads the outbox.
// Afterwards, acknowledged operations have their events; returned events still have their
// ids, unless they were confirmed; and confirmed events do not return.
func crashEventsAmidst(k *kit) {
	for _, restart := range k.restarts() {
		k.open(unlimited())
		k.keepEvents(1 << 40)
		told := &toldEvents{settled: map[string]bool{}, events: map[string]string{}, confirmed: map[string]bool{}, maybe: map[string]bool{}}
		const workers, jobs = 3, 4000
		for n := range workers {
			s := spec(fmt.Sprint("a", n), "tenant")
			s.Events = []string{bulk.JobEvents}
			k.run(s, jobs)
		}
		for round := range 8 {
			s := k.store
			calls := newCalls(int64(10 + round*15))
			var all sync.WaitGroup
			for range workers {
				all.Go(func() { told.work(s, calls) })
			}
			all.Go(func() { told.publish(s, calls) })
			<-calls.enough
			before := told.snapshot()
			restart()
			all.Wait()
			for _, err := range told.failures {
				k.check(errors.Is(err, bulk.ErrClosed), "Published, when the store crashed: %v, want ErrClosed", err)
			}
			before.mayBeGone(told)
			k.checkEventsTold(before)
			told = before // operations acknowledged during the crash may be lost
		}
	}
}

// work settles jobs until the store closes.
func (e *toldEvents) work(s bulk.Store, calls *calls) {
	lease(s, calls, func(jobs []bulk.Job) bool {
		settlements := make([]bulk.Settlement, len(jobs))
		for i, j := range jobs {
			settlements[i] = bulk.Settlement{Lease: j.Lease, Kind: bulk.Succeeded, Result: []byte("1")}
		}
		verdicts, err := s.Settle(ctx, settlements)
		if err != nil {
			return false
		}
		e.Lock()
		for i, v := range verdicts {
			if v == bulk.Accepted {
				e.settled[jobs[i].ID()] = true
			}
		}
		e.Unlock()
		return true
	})
}

// publish reads the outbox, and confirms two times of three, until the store closes.
func (e *toldEvents) publish(s bulk.Store, calls *calls) {
	for round := 0; ; round++ {
		calls.add(1)
		events, upTo, err := s.Events(ctx)
		if err != nil {
			return
		}
		e.Lock()
		for _, event := range events {
			e.events[event.ID] = event.Subject
			e.maybe[event.ID] = e.maybe[event.ID] || round%3 > 0
		}
		e.Unlock()
		if len(events) == 0 {
			runtime.Gosched()
		}
		if round%3 == 0 {
			continue
		}
		if err := s.Published(ctx, upTo); err != nil {
			e.Lock()
			e.failures = append(e.failures, err)
			e.Unlock()
			return
		}
		e.Lock()
		for _, event := range events {
			e.confirmed[event.ID] = true
		}
		e.Unlock()
	}
}

// snapshot copies what callers know so far.
func (e *toldEvents) snapshot() *toldEvents {
	e.Lock()
	defer e.Unlock()
	return &toldEvents{settled: maps.Clone(e.settled), events: maps.Clone(e.events), confirmed: maps.Clone(e.confirmed)}
}

// mayBeGone adopts the events for which Published was called during the crash: they may be
// deleted or not.
func (e *toldEvents) mayBeGone(after *toldEvents) {
	e.maybe = after.maybe
	for id, subject := range after.events {
		if e.maybe[id] {
			e.events[id] = subject
		}
	}
}

// checkEventsTold empties the outbox and checks it against the known events.
func (k *kit) checkEventsTold(told *toldEvents) {
	k.t.Helper()
	there := map[string]string{}
	for _, e := range k.events() {
		there[e.ID] = e.Subject
		k.check(!told.confirmed[e.ID], "event %s of %s comes again after it was confirmed", e.ID, e.Subject)
		k.check(told.events[e.ID] == "" || told.events[e.ID] == e.Subject, "event %s is of %s, and was of %s", e.ID, e.Subject, told.events[e.ID])
	}
	subjects := map[string]bool{}
	for id, subject := range told.events {
		subjects[subject] = true
		k.check(there[id] == subject || told.maybe[id], "event %s of %s was returned, not confirmed, and is lost", id, subject)
	}
	for id, subject := range there {
		subjects[subject] = true
		told.events[id], told.confirmed[id], told.maybe[id] = subject, true, true
	}
	for job := range told.settled {
		k.check(subjects[job], "%s was settled, and has no event", job)
	}
}
