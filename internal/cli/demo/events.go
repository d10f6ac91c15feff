package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// demoGroup is the consumer group that reads the events of the demo.
const demoGroup = "demo"

const (
	// demoTail is how many events the report shows.
	demoTail = 5
	// eventPatience bounds how long the group may take to read all events after the
	// last job.
	eventPatience = 15 * time.Second
	eventLook     = 50 * time.Millisecond
)

// mostWrong bounds the errors that are listed.
const mostWrong = 1000

// faults are the errors that a check has found.
type faults []error

func (f *faults) blame(format string, args ...any) {
	if len(*f) < mostWrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Wrong returns the errors as one; nil if there is none.
func (f *faults) Wrong() error { return errors.Join(*f...) }

// eventTail reads the events of a topic as a member of a consumer group.
type eventTail interface {
	// Next waits for events.
	Next(ctx context.Context) ([]eventAt, error)
	// Commit commits the events that Next has returned.
	Commit(ctx context.Context) error
	// Behind returns how many events the group has not committed, and how many exist.
	Behind(ctx context.Context) (behind, all int64, err error)
	Close()
}

// eventAt is an event as a record.
type eventAt struct {
	Partition int32
	Offset    int64
	Value     []byte
}

// seenEvents collects the events that a consumer has read.
type seenEvents struct {
	total int64
	ids   map[string]bool
	// states are the states of the actions in the order of their events; jobs has the
	// jobs with an event.
	states map[string][]string
	jobs   map[string]bool
	// succeeded and failed count the jobs with an event, by action.
	succeeded, failed map[string]int64
	first             time.Time
	tail              []seenEvent
	faults
}

// seenEvent is an event as the report shows it.
type seenEvent struct {
	eventAt
	ID           string    `json:"id"`
	Type         string    `json:"type"`
	Subject      string    `json:"subject"`
	Time         time.Time `json:"time"`
	Tenant       string    `json:"tenant"`
	PartitionKey string    `json:"partitionkey"`
	Data         struct {
		Succeeded, Failed int64
		Attempts          int
	} `json:"data"`
}

func newSeenEvents() *seenEvents {
	return &seenEvents{
		ids: map[string]bool{}, states: map[string][]string{}, jobs: map[string]bool{}, succeeded: map[string]int64{}, failed: map[string]int64{},
	}
}

// runningStates is how many state events an action has when its jobs run.
const runningStates = 3

// statesOfLife are the states of an action that completes, in order.
var statesOfLife = []string{"created", "dispatched", "running", "aggregating", "completed"}

// kind returns the type of an event without the common prefix, such as
// "action.created".
func (e *seenEvent) kind() string { return strings.TrimPrefix(e.Type, "io.sluice.bulk.") }

// Add takes one event.
func (h *seenEvents) Add(at eventAt) {
	e := seenEvent{eventAt: at}
	h.total++
	if err := json.Unmarshal(at.Value, &e); err != nil {
		h.blame("the record at %d/%d is no event: %w", at.Partition, at.Offset, err)
		return
	}
	if h.ids[e.ID] {
		h.blame("event %s came twice", e.ID)
	}
	h.ids[e.ID] = true
	if h.first.IsZero() || e.Time.Before(h.first) {
		h.first = e.Time
	}
	switch e.Type {
	case bulk.JobSucceeded:
		h.succeeded[e.PartitionKey]++
		h.addJob(&e)
	case bulk.JobFailed:
		h.failed[e.PartitionKey]++
		h.addJob(&e)
	default:
		_, state, _ := strings.Cut(e.kind(), ".")
		h.states[e.Subject] = append(h.states[e.Subject], state)
	}
	h.tail = append(h.tail, e)
	slices.SortStableFunc(h.tail, func(a, b seenEvent) int { return a.Time.Compare(b.Time) })
	h.tail = h.tail[max(0, len(h.tail)-demoTail):]
}

func (h *seenEvents) addJob(e *seenEvent) {
	if h.jobs[e.Subject] {
		h.blame("job %s has two events", e.Subject)
	}
	h.jobs[e.Subject] = true
	if states := h.states[e.PartitionKey]; len(states) != runningStates {
		h.blame("the event of job %s came when its action was %v", e.Subject, states)
	}
}

// Check compares the events with the results of the actions. The actions of one
// tenant have events of their jobs.
func (h *seenEvents) Check(actions []bulk.Action, eventsTenant string) error {
	wrong, jobs := slices.Clone(h.faults), int64(0)
	for i := range actions {
		a := &actions[i]
		if !slices.Equal(h.states[a.ID], statesOfLife) {
			wrong.blame("the events of action %s of %s have the states %v", a.ID, a.Tenant, h.states[a.ID])
		}
		var succeeded, failed int64
		if a.Tenant == eventsTenant {
			succeeded, failed = a.Succeeded, a.Failed
		}
		jobs += succeeded + failed
		if h.succeeded[a.ID] != succeeded || h.failed[a.ID] != failed {
			wrong.blame("of the jobs of %s %d succeeded and %d failed, but by the events %d and %d",
				a.Tenant, succeeded, failed, h.succeeded[a.ID], h.failed[a.ID])
		}
	}
	if want := expectedEvents(actions, eventsTenant); h.total != want || int64(len(h.jobs)) != jobs {
		wrong.blame("%d events were read, of %d jobs; want %d, of %d", h.total, len(h.jobs), want, jobs)
	}
	return wrong.Wrong()
}

// expectedEvents returns how many events there must be.
func expectedEvents(actions []bulk.Action, eventsTenant string) (want int64) {
	for i := range actions {
		want += int64(len(statesOfLife))
		if actions[i].Tenant == eventsTenant {
			want += actions[i].Succeeded + actions[i].Failed
		}
	}
	return want
}

// eventSink receives events, from one goroutine.
type eventSink interface{ Add(at eventAt) }

// eventReader reads events while the demo runs.
type eventReader struct {
	tail   eventTail
	cancel context.CancelFunc
	done   chan struct{}

	mu  sync.Mutex // also held while to receives events
	to  eventSink
	err error
}

// readEvents starts to read, until Close.
func readEvents(ctx context.Context, tail eventTail, to eventSink) *eventReader {
	ctx, cancel := context.WithCancel(ctx)
	h := &eventReader{tail: tail, cancel: cancel, done: make(chan struct{}), to: to}
	go func() {
		defer close(h.done)
		err := h.read(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.err = err
	}()
	return h
}

func (h *eventReader) read(ctx context.Context) error {
	for {
		events, err := h.tail.Next(ctx)
		if err != nil {
			return err
		}
		h.mu.Lock()
		for _, e := range events {
			h.to.Add(e)
		}
		h.mu.Unlock()
		if err := h.tail.Commit(ctx); err != nil {
			return err
		}
	}
}

// Close stops reading.
func (h *eventReader) Close() {
	h.cancel()
	<-h.done
	h.tail.Close()
}

// eventsResult is the result of checking the events.
type eventsResult struct {
	*seenEvents
	// Want is how many events there must be, All how many the topic has, Committed
	// how many of them the group has committed.
	Want, All, Committed int64
	// Actions, and of which tenant all Jobs are told.
	Actions      int
	EventsTenant string
	// Err has all errors, also uncommitted: the group has not committed all events.
	Err, uncommitted error
}

// Await waits until the group has committed all events and enough reports that they are
// complete, for at most eventPatience, and stops reading.
func (h *eventReader) Await(ctx context.Context, enough func(all int64) bool) (all, committed int64, err error) {
	deadline := time.Now().Add(eventPatience)
	for {
		behind, all, err := h.tail.Behind(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("the progress of reading events: %w", err)
		}
		h.mu.Lock()
		failed, done := h.err, behind == 0 && enough(all)
		h.mu.Unlock()
		if failed != nil {
			return 0, 0, fmt.Errorf("read events: %w", failed)
		}
		if done || time.Now().After(deadline) {
			h.cancel()
			<-h.done
			return all, all - behind, nil
		}
		if err := rest(ctx, eventLook); err != nil {
			return 0, 0, err
		}
	}
}

// eventsOf waits for the events of bulk and checks them.
func eventsOf(ctx context.Context, h *eventReader, seen *seenEvents, actions []bulk.Action, eventsTenant string) (_ *eventsResult, err error) {
	result := &eventsResult{seenEvents: seen, Want: expectedEvents(actions, eventsTenant), Actions: len(actions), EventsTenant: eventsTenant}
	if result.All, result.Committed, err = h.Await(ctx, func(all int64) bool { return all >= result.Want }); err != nil {
		return nil, err
	}
	result.Err = seen.Check(actions, eventsTenant)
	if result.Committed != result.All || result.All != result.Want {
		result.uncommitted = fmt.Errorf("group %s has committed %d of %d events, of which there must be %d",
			demoGroup, result.Committed, result.All, result.Want)
		result.Err = errors.Join(result.Err, result.uncommitted)
	}
	return result, nil
}

func (r *eventsResult) checks() []fact {
	return []fact{
		{"events", fmt.Sprintf("%s in %s: each state of %s once and in order,\nand %s of the jobs of %s, each once",
			humanize.Comma(r.total), events.BulkTopic, term.Counted(int64(r.Actions), "action"), humanize.Comma(int64(len(r.jobs))),
			term.Printable(r.EventsTenant)), r.Err},
		{"committed", fmt.Sprintf("%s of %s by the consumer group %q", humanize.Comma(r.Committed), term.Counted(r.All, "event"), demoGroup), r.uncommitted},
	}
}

// writeTail writes the last events.
func (r *eventsResult) writeTail(w io.Writer, columns int) {
	fmt.Fprintf(w, "\nthe end of %s\n", events.BulkTopic)
	g := term.Grid{Header: []string{"after", "place", "event", "tenant", ""}, Left: map[int]bool{2: true, 3: true, 4: true}}
	for i := range r.tail {
		e := &r.tail[i]
		told := ""
		switch {
		case strings.HasPrefix(e.kind(), "job."):
			told = term.Counted(int64(e.Data.Attempts), "attempt")
		case e.Data.Succeeded+e.Data.Failed > 0:
			told = humanize.Comma(e.Data.Succeeded) + " succeeded, " + humanize.Comma(e.Data.Failed) + " failed"
		}
		place := strconv.Itoa(int(e.Partition)) + "/" + strconv.FormatInt(e.Offset, 10)
		g.Rows = append(g.Rows, []string{term.Spell(e.Time.Sub(r.first)), place, e.kind(), term.Name(e.Tenant), told})
	}
	g.Write(w, columns)
}
