package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// memEvents is the outbox of the store in memory.
type memEvents struct {
	most    int64
	first   uint64
	waiting []bulk.Event
}

// runs counts the stores that were opened, for ids.
var runs int

func (m *memory) KeepEvents(_ context.Context, most int64) error {
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	m.events.most = most
	if most == 0 && m.is("turning off empties the outbox") {
		m.events.waiting = nil
	}
	return nil
}

func (m *memory) Events(context.Context) ([]bulk.Event, uint64, error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	o := &m.events
	some := slices.Clone(o.waiting[:min(7, len(o.waiting))])
	if m.is("ids change") {
		for i := range some {
			runs++
			some[i].ID = fmt.Sprint("run-", runs)
		}
	}
	return some, o.first + uint64(len(some)), nil
}

func (m *memory) Published(_ context.Context, upTo uint64) error {
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	o := &m.events
	if upTo <= o.first || m.is("published comes again") {
		return nil
	}
	o.waiting, o.first = o.waiting[upTo-o.first:], upTo
	return nil
}

func (m *memory) full() error {
	if o := &m.events; o.most > 0 && int64(len(o.waiting)) >= o.most && !m.is("outbox without bound") {
		return fmt.Errorf("%w: of events", bulk.ErrFull)
	}
	return nil
}

func (m *memory) keep(e bulk.Event, err error) {
	if err != nil {
		panic(err)
	}
	runs++
	e.ID = fmt.Sprint("run-", runs)
	if m.is("ids of each action") {
		e.ID = e.Action + e.Type
	}
	m.events.waiting = append(m.events.waiting, e)
	if m.is("newest first") {
		slices.Reverse(m.events.waiting)
	}
}

func (m *memory) announce(eventType string, a *bulk.Action) {
	if m.events.most > 0 && eventType != "" && (eventType != bulk.ActionPaused || !m.is("pause tells nobody")) {
		m.keep(a.Event(eventType, time.Now()))
	}
}

// announceEnded tells of a job that is done for good.
func (m *memory) announceEnded(j *memJob, s bulk.Settlement, text string) {
	a := j.action
	if m.events.most == 0 || !a.JobEvents() && !m.is("job events unasked") {
		return
	}
	r := bulk.JobResult{
		Action: a.ID, Tenant: a.Tenant, Index: j.index, Succeeded: j.state == memSucceeded, Attempts: j.attempts,
		Result: s.Result, ResultTruncated: s.ResultTruncated, Error: text, FinishedAt: time.Now(),
	}
	if len(r.Result) > bulk.MaxEventResult && !m.is("large results") {
		r.Result, r.ResultTruncated = nil, true
	}
	if !r.Succeeded && m.is("failures tell nobody") {
		return
	}
	m.keep(r.Event())
	if m.is("jobs tell twice") {
		m.keep(r.Event())
	}
}

func (m *memory) showOutbox(b *bulk.Backlog) {
	if b.Outbox = int64(len(m.events.waiting)); b.Outbox > 0 {
		b.OldestEvent = m.events.waiting[0].Time
	}
}
