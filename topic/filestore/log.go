package filestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// log is a topic.Log.
type log struct {
	store *Store
	name  string
	id    uint64
	dir   string

	// trimming is held while the first sequence is changed, or the log is deleted.
	trimming sync.Mutex

	// writing is held while the files are changed, and guards what follows.
	writing  sync.Mutex
	durable  int64 // how much of the last segment is durable
	reserved int64 // how much of it has space on the disk
	ahead    int64 // how much was reserved the last time
	headers  []byte
	buffers  [][]byte

	mu    sync.Mutex
	state error // nil, or why it takes no appends: topic.ErrClosed, topic.ErrNoLog or ErrBroken
	// segments are in order; there is always one, which grows.
	segments    []*segment
	first, last uint64
	// queued is the last sequence that was accepted, queue the appends that wait to be
	// written, and spare a queue to use again.
	queued uint64
	queue  []pending
	spare  []pending
	busy   bool          // a goroutine writes
	idle   chan struct{} // closed when busy ends; nil if nobody waits
	moved  chan struct{} // closed when last grows or state changes; nil if nobody waits
}

// pending is an append that is not written yet, or was refused with err.
type pending struct {
	entry topic.Entry
	done  func(error)
	err   error
}

var (
	_ topic.Log    = (*log)(nil)
	_ topic.Syncer = (*log)(nil)
)

// EntryTooLargeError reports that an entry has more than MaxEntryBytes of data.
type EntryTooLargeError struct {
	// Bytes is the length of its data.
	Bytes int
}

func (e *EntryTooLargeError) Error() string {
	return fmt.Sprintf("entry has %d bytes: want at most %d", e.Bytes, MaxEntryBytes)
}

// Append queues an entry. The caller bounds the appends in flight.
func (l *log) Append(entry topic.Entry, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.accept(entry)
	if err == nil {
		l.queued++
	}
	l.queue = append(l.queue, pending{entry, done, err})
	if !l.busy {
		l.busy = true
		go l.write()
	}
}

// accept returns why an entry cannot be appended, or nil. The caller holds mu.
func (l *log) accept(entry topic.Entry) error {
	switch {
	case l.state != nil:
		return l.state
	case entry.Sequence != l.queued+1:
		return fmt.Errorf("%w: entry %d of log %s, want %d", topic.ErrFenced, entry.Sequence, l.name, l.queued+1)
	case len(entry.Data) > MaxEntryBytes:
		return &EntryTooLargeError{Bytes: len(entry.Data)}
	case len(entry.Data) == 0: // or a full disk could not be read and trimmed
		return l.store.small.Check(time.Now(), headerBytes)
	}
	return l.store.disk.Check(time.Now(), headerBytes+len(entry.Data))
}

// Read returns entries of one segment.
func (l *log) Read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g, from, err := l.at(from)
		if g == nil || err != nil {
			return nil, err
		}
		entries, err := g.read(from, maxBytes)
		if errors.Is(err, errGone) {
			continue // trimmed or deleted since
		}
		if err != nil {
			return nil, fmt.Errorf("read log %s: %w", l.name, err)
		}
		return entries, nil
	}
}

// at returns the segment that has the first entry from a sequence on, and its sequence; nil if
// there is no such entry.
func (l *log) at(from uint64) (*segment, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ended(); err != nil {
		return nil, 0, err
	}
	if from = max(from, l.first); from > l.last {
		return nil, 0, nil
	}
	i := len(l.segments) - 1
	for l.segments[i].first > from { // most reads are near the end
		i--
	}
	return l.segments[i], from, nil
}

// ended returns the error of all calls on a log that is closed or deleted. The caller holds
// mu.
func (l *log) ended() error {
	if errors.Is(l.state, ErrBroken) {
		return nil
	}
	return l.state
}

// Ends returns the first and the last sequence.
func (l *log) Ends(context.Context) (first, last uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.last, l.ended()
}

// Wait returns when the log's last sequence is at least sequence.
func (l *log) Wait(ctx context.Context, sequence uint64) error {
	for {
		l.mu.Lock()
		if err := l.ended(); err != nil || l.last >= sequence {
			l.mu.Unlock()
			return err
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake wakes those who wait. The caller holds mu.
func (l *log) wake() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// end makes all later calls fail. The first reason stays.
func (l *log) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() == nil {
		l.state = reason
	}
	l.wake()
}

// drain waits until all appends have an outcome.
func (l *log) drain() {
	l.mu.Lock()
	if !l.busy {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	<-idle
}

// Sync implements topic.Syncer.
func (l *log) Sync(context.Context) error {
	if err := l.store.enter(); err != nil {
		return err
	}
	defer l.store.running.Done()
	l.mu.Lock()
	err := l.state
	l.mu.Unlock()
	if err == nil {
		err = l.sync()
	}
	return err
}

// Trim removes the entries before a sequence: their files when all entries of a file are
// before it.
func (l *log) Trim(_ context.Context, before uint64) error {
	if err := l.store.enter(); err != nil {
		return err
	}
	defer l.store.running.Done()
	l.store.layout.RLock()
	defer l.store.layout.RUnlock()
	l.trimming.Lock()
	defer l.trimming.Unlock()
	l.mu.Lock()
	before = min(before, l.last+1)
	first, err := l.first, l.ended()
	l.mu.Unlock()
	if err != nil || before <= first {
		return err
	}
	// A power cut must not take the entries that stay, and leave the removal.
	if err := l.sync(); err != nil {
		return fmt.Errorf("trim log %s: %w", l.name, err)
	}
	if err := l.store.catalog.put(l.name, logRecord{l.id, before}); err != nil {
		return fmt.Errorf("trim log %s: %w", l.name, err)
	}
	l.mu.Lock()
	l.first = before
	l.mu.Unlock()
	if err := l.dropSegments(); err != nil {
		return fmt.Errorf("trim log %s: remove its files: %w", l.name, err)
	}
	return nil
}

// dropSegments removes the segments whose entries are all trimmed.
func (l *log) dropSegments() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	empty, broken := l.first > l.last && l.active().first <= l.last, l.state != nil
	l.mu.Unlock()
	if empty && !broken {
		if err := l.roll(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	n := 0
	for n < len(l.segments)-1 && l.segments[n+1].first <= l.first {
		n++
	}
	dropped := l.segments[:n:n]
	l.segments = l.segments[n:]
	l.mu.Unlock()
	for _, g := range dropped {
		if err := g.remove(); err != nil {
			return err
		}
	}
	return nil
}
