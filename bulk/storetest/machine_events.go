package storetest

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// modelEvents has the unpublished events. An event is written as its subject and its type.
type modelEvents struct {
	// waiting has the events of each action, in groups: the groups are in order, the events
	// of a group in any order.
	waiting map[string][][]string
	number  int64
	// ids has every seen id with its event; read has the unconfirmed events of the last call
	// of Events.
	ids       map[string]string
	confirmed map[string]bool
	read      []string
}

func newModelEvents() *modelEvents {
	return &modelEvents{waiting: map[string][][]string{}, ids: map[string]string{}, confirmed: map[string]bool{}}
}

// add adds a group of events of an action.
func (e *modelEvents) add(action string, group ...string) {
	if len(group) > 0 {
		e.waiting[action] = append(e.waiting[action], group)
		e.number += int64(len(group))
	}
}

// addAll adds a group of events of each action.
func (e *modelEvents) addAll(groups map[string][]string) {
	for action, group := range groups {
		e.add(action, group...)
	}
}

// take takes the next event of an action; false if the event is not the next.
func (e *modelEvents) take(action, event string) bool {
	groups := e.waiting[action]
	if len(groups) == 0 {
		return false
	}
	at := slices.Index(groups[0], event)
	if at < 0 {
		return false
	}
	e.number--
	if groups[0] = slices.Delete(slices.Clone(groups[0]), at, at+1); len(groups[0]) == 0 {
		groups = groups[1:]
	}
	e.waiting[action] = groups
	return true
}

// clone copies the fields that take changes.
func (e *modelEvents) clone() *modelEvents {
	c := *e
	c.waiting = map[string][][]string{}
	for id, groups := range e.waiting {
		c.waiting[id] = slices.Clone(groups)
	}
	return &c
}

// told returns the event of a job if it is done and its action asks for events of its jobs.
func (a *modelAction) told(j *modelJob) []string {
	subject := bulk.JobID(a.ID, int64(slices.Index(a.jobs, j)))
	switch {
	case !a.JobEvents():
		return nil
	case j.state == modelSucceeded:
		return []string{subject + " " + bulk.JobSucceeded}
	case j.state == modelFailed:
		return []string{subject + " " + bulk.JobFailed}
	}
	return nil
}

// tellTransition adds the event of a transition, derived from the changes.
func (e *modelEvents) tellTransition(before, after bulk.Action) {
	tell := func(what string) { e.add(after.ID, after.ID+" io.sluice.bulk.action."+what) }
	switch {
	case before.Status == "": // a stream begins as RUNNING
		tell("created")
	case before.Status != after.Status:
		tell(strings.ToLower(string(after.Status)))
	case !before.Paused && after.Paused:
		tell("paused")
	case before.Paused && !after.Paused:
		tell("resumed")
	case before.FinishedAt.IsZero() && !after.FinishedAt.IsZero():
		tell("drained")
	}
}

// readEvents reads the outbox, which must begin with the same unconfirmed events as before,
// and sometimes confirms.
func (m *machine) readEvents(t *rapid.T) { m.publish(rapid.Bool().Draw(t, "confirm")) }

func (m *machine) publish(confirm bool) (published int) {
	events, upTo, err := m.store.Events(ctx)
	m.must(err)
	known := m.model.events
	m.check((len(events) == 0) == (known.number == 0), "%d events are returned, %d wait", len(events), known.number)
	left := known.clone()
	var ids []string
	for i, e := range events {
		what := e.Subject + " " + e.Type
		m.check(left.take(e.Action, what), "event %s (%s) is not the next one of its action: want one of %v", e.ID, what, left.waiting[e.Action])
		m.check(!slices.Contains(ids, e.ID) && (known.ids[e.ID] == "" || known.ids[e.ID] == what), "event %s is of %s, and was of %s", e.ID, what, known.ids[e.ID])
		m.check(!known.confirmed[e.ID], "event %s (%s) comes again after it was confirmed", e.ID, what)
		m.check(i >= len(known.read) || known.read[i] == e.ID, "event %d was %v, and is %s now", i, known.read, e.ID)
		known.ids[e.ID], ids = what, append(ids, e.ID)
	}
	known.read = ids
	if confirm {
		m.must(m.store.Published(ctx, upTo))
		left.read = nil
		for _, id := range ids {
			left.confirmed[id] = true
		}
		m.model.events = left
	}
	return len(events)
}

// publishAll publishes until the outbox is empty.
func (m *machine) publishAll() {
	for m.publish(true) > 0 {
	}
	m.check(m.model.events.number == 0, "the outbox is empty, but %v are missing", m.model.events.waiting)
}
