package history

import (
	"fmt"
	"sync"
	"time"
)

// Recorder records a history. It is safe for concurrent use.
type Recorder struct {
	begin time.Time
	mu    sync.Mutex
	h     History
	acked int
}

// NewRecorder begins the history of a topic with the given number of partitions.
func NewRecorder(partitions int) *Recorder {
	return &Recorder{begin: time.Now(), h: History{Partitions: partitions, Reads: map[string][]Record{}}}
}

// Now returns the time since the beginning.
func (r *Recorder) Now() time.Duration { return time.Since(r.begin) }

// Sent records a record that was answered now.
func (r *Recorder) Sent(s Send) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Answered = r.Now() // under the lock, so that sends are in the order of their answers
	if s.Offset != Unknown {
		r.acked++
	}
	r.h.Sends = append(r.h.Sends, s)
}

// Acknowledged returns how many records were acknowledged.
func (r *Recorder) Acknowledged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// Read records the records that a reader received.
func (r *Recorder) Read(reader string, records ...Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Reads[reader] = append(r.h.Reads[reader], records...)
}

// Processed records the records that a member of the group received.
func (r *Recorder) Processed(records ...Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Processed = append(r.h.Processed, records...)
}

// Committed records an offset that was acknowledged or seen now.
func (r *Recorder) Committed(c Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Answered = r.Now()
	r.h.Commits = append(r.h.Commits, c)
}

// Began records a fault that begins now. The returned functions record when it was healed and when
// the cluster was whole again.
func (r *Recorder) Began(kind string, node int) (healed, recovered func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := len(r.h.Faults)
	r.h.Faults = append(r.h.Faults, Fault{Kind: kind, Node: node, At: r.Now()})
	note := func(set func(*Fault, time.Duration)) func() {
		return func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			set(&r.h.Faults[number], r.Now())
		}
	}
	return note(func(f *Fault, now time.Duration) { f.Healed = now }), note(func(f *Fault, now time.Duration) { f.Recovered = now })
}

// Complain records a violation that a client has found.
func (r *Recorder) Complain(kind, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Complaints = append(r.h.Complaints, Violation{kind, fmt.Sprintf(format, args...)})
}

// Stop marks the end of sending.
func (r *Recorder) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.End = r.Now()
}

// History returns the history. The recorder must not be used afterwards.
func (r *Recorder) History(log []Record) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Log = log
	return &r.h
}
