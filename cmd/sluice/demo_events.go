package main

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
)

// demoGroup is the consumer group that reads the events of the demo.
const demoGroup = "demo"

const (
	// demoTail is how many events the report shows.
	demoTail = 5
	// eventPatience is how long the group may take, after the last job, to have read
	// all events.
	eventPatience = 15 * time.Second
	eventLook     = 50 * time.Millisecond
)

// eventTail reads the events of a topic as a member of a consumer group.
type eventTail interface {
	// Next waits for events.
	Next(ctx context.Context) ([]eventAt, error)
	// Commit commits what Next has returned.
	Commit(ctx context.Context) error
	// Behind is how many events the group has not committed, of how many there are.
	Behind(ctx context.Context) (behind, all int64, err error)
	Close()
}

// eventAt is an event as a record.
type eventAt struct {
	Partition int32
	Offset    int64
	Value     []byte
}

// heardEvents is what a consumer of events knows.
type heardEvents struct {
	total int64
	ids   map[string]bool
	// states are those of the actions, in the order in which they were told. Jobs
	// has the jobs that were told of.
	states map[string][]string
	jobs   map[string]bool
	// succeeded and failed count the jobs that were told of, by action.
	succeeded, failed map[string]int64
	first             time.Time
	tail              []heardEvent
	wrong             []error
}

// heardEvent is an event as the tail shows it.
type heardEvent struct {
	eventAt
	ID           string    `json:"id"`
	Type         string    `json:"type"`
	Source       string    `json:"source"`
	Subject      string    `json:"subject"`
	Time         time.Time `json:"time"`
	Tenant       string    `json:"tenant"`
	PartitionKey string    `json:"partitionkey"`
	Data         struct {
		Succeeded, Failed int64
		Attempts          int
	} `json:"data"`
}

func newHeardEvents() *heardEvents {
	return &heardEvents{
		ids: map[string]bool{}, states: map[string][]string{}, jobs: map[string]bool{}, succeeded: map[string]int64{}, failed: map[string]int64{},
	}
}

// runningStates is how many states an action has told when its jobs run.
const runningStates = 3

// statesOfLife are the states of an action that completes, in order.
var statesOfLife = []string{"created", "dispatched", "running", "aggregating", "completed"}

// eventKind is the type of an event without what all have in common, such as
// "action.created".
func (e *heardEvent) kind() string { return strings.TrimPrefix(e.Type, "io.sluice.bulk.") }

// Add takes one event.
func (h *heardEvents) Add(at eventAt) {
	e := heardEvent{eventAt: at}
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
	slices.SortStableFunc(h.tail, func(a, b heardEvent) int { return a.Time.Compare(b.Time) })
	h.tail = h.tail[max(0, len(h.tail)-demoTail):]
}

func (h *heardEvents) addJob(e *heardEvent) {
	if h.jobs[e.Subject] {
		h.blame("job %s was told of twice", e.Subject)
	}
	h.jobs[e.Subject] = true
	if states := h.states[e.PartitionKey]; len(states) != runningStates {
		h.blame("job %s was told of when its action was %v", e.Subject, states)
	}
}

func (h *heardEvents) blame(format string, args ...any) {
	if len(h.wrong) < mostMessages {
		h.wrong = append(h.wrong, fmt.Errorf(format, args...))
	}
}

// Check compares what was heard with what became of the actions, of which those
// of one tenant tell of their jobs.
func (h *heardEvents) Check(actions []bulk.Action, tells string) error {
	wrong, jobs := slices.Clone(h.wrong), int64(0)
	for i := range actions {
		a := &actions[i]
		if !slices.Equal(h.states[a.ID], statesOfLife) {
			wrong = append(wrong, fmt.Errorf("action %s of %s told that it was %v", a.ID, a.Tenant, h.states[a.ID]))
		}
		var succeeded, failed int64
		if a.Tenant == tells {
			succeeded, failed = a.Succeeded, a.Failed
		}
		jobs += succeeded + failed
		if h.succeeded[a.ID] != succeeded || h.failed[a.ID] != failed {
			wrong = append(wrong, fmt.Errorf("of the jobs of %s %d succeeded and %d failed, but %d and %d were told of",
				a.Tenant, succeeded, failed, h.succeeded[a.ID], h.failed[a.ID]))
		}
	}
	if want := expectedEvents(actions, tells); h.total != want || int64(len(h.jobs)) != jobs {
		wrong = append(wrong, fmt.Errorf("%d events were read, of %d jobs; want %d, of %d", h.total, len(h.jobs), want, jobs))
	}
	return errors.Join(wrong...)
}

// expectedEvents is how many events there must be.
func expectedEvents(actions []bulk.Action, tells string) (want int64) {
	for i := range actions {
		want += int64(len(statesOfLife))
		if actions[i].Tenant == tells {
			want += actions[i].Succeeded + actions[i].Failed
		}
	}
	return want
}

// listener is told of events, by one goroutine.
type listener interface{ Add(at eventAt) }

// hearing reads events beside the demo.
type hearing struct {
	tail   eventTail
	cancel context.CancelFunc
	done   chan struct{}

	mu  sync.Mutex // holds also while to is told
	to  listener
	err error
}

// hear begins to read, until Close.
func hear(ctx context.Context, tail eventTail, to listener) *hearing {
	ctx, cancel := context.WithCancel(ctx)
	h := &hearing{tail: tail, cancel: cancel, done: make(chan struct{}), to: to}
	go func() {
		defer close(h.done)
		err := h.read(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.err = err
	}()
	return h
}

func (h *hearing) read(ctx context.Context) error {
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

// Close ends reading.
func (h *hearing) Close() {
	h.cancel()
	<-h.done
	h.tail.Close()
}

// eventsResult is what became of the events.
type eventsResult struct {
	*heardEvents
	// Want is how many there must be, All how many the topic has, Committed how many
	// of them the group has committed.
	Want, All, Committed int64
	// Actions, and of which tenant all Jobs are told.
	Actions int
	Tells   string
	Err     error
}

// Await waits until the group has read and committed all events and enough says that
// they are all, but not for ever, and ends reading.
func (h *hearing) Await(ctx context.Context, enough func(all int64) bool) (all, committed int64, err error) {
	deadline := time.Now().Add(eventPatience)
	for {
		behind, all, err := h.tail.Behind(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("what has been read of the events: %w", err)
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

// eventsOf waits for the events of bulk.
func eventsOf(ctx context.Context, h *hearing, heard *heardEvents, actions []bulk.Action, tells string) (_ *eventsResult, err error) {
	result := &eventsResult{heardEvents: heard, Want: expectedEvents(actions, tells), Actions: len(actions), Tells: tells}
	if result.All, result.Committed, err = h.Await(ctx, func(all int64) bool { return all >= result.Want }); err != nil {
		return nil, err
	}
	result.Err = heard.Check(actions, tells)
	if result.Committed != result.All || result.All != result.Want {
		result.Err = errors.Join(result.Err, fmt.Errorf("group %s has committed %d of %d events, of which there must be %d",
			demoGroup, result.Committed, result.All, result.Want))
	}
	return result, nil
}

func (r *eventsResult) facts() []fact {
	return []fact{
		{
			name: "events", checked: true, ok: r.Err == nil,
			text: fmt.Sprintf("%s in %s: %s told of each state once and in order,\nand %s of the jobs of %s, each once",
				humanize.Comma(r.total), bulkEventsTopic, counted(int64(r.Actions), "action"), humanize.Comma(int64(len(r.jobs))), printable(r.Tells)),
		},
		{
			name: "committed", checked: true, ok: r.Committed == r.All && r.All == r.Want,
			text: fmt.Sprintf("%s of %s by the consumer group %q", humanize.Comma(r.Committed), counted(r.All, "event"), demoGroup),
		},
	}
}

// writeTail writes the last events.
func (r *eventsResult) writeTail(w io.Writer, columns int) {
	fmt.Fprintf(w, "\nthe end of %s\n", bulkEventsTopic)
	g := grid{Header: []string{"after", "place", "event", "tenant", ""}, Left: map[int]bool{2: true, 3: true, 4: true}}
	for i := range r.tail {
		e := &r.tail[i]
		told := ""
		switch {
		case strings.HasPrefix(e.kind(), "job."):
			told = counted(int64(e.Data.Attempts), "attempt")
		case e.Data.Succeeded+e.Data.Failed > 0:
			told = humanize.Comma(e.Data.Succeeded) + " succeeded, " + humanize.Comma(e.Data.Failed) + " failed"
		}
		place := strconv.Itoa(int(e.Partition)) + "/" + strconv.FormatInt(e.Offset, 10)
		g.Rows = append(g.Rows, []string{spell(e.Time.Sub(r.first)), place, e.kind(), clip(printable(e.Tenant), longestName), told})
	}
	g.Write(w, columns)
}
