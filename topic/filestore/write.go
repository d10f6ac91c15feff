package filestore

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
)

// ErrBroken reports that a write to a log has failed: what the disk has is known again when the
// store is opened the next time.
var ErrBroken = errors.New("a write to the log has failed: it takes no appends until the store is opened again")

const (
	// runEntries and runBytes bound what is written at a time; a single entry may be larger.
	runEntries = 256
	runBytes   = 8 << 20

	// reserveMin and reserveMax bound the space that is reserved for a segment at a time: twice
	// as much as the time before.
	reserveMin = 64 << 10
	reserveMax = 1 << 20
	// zerosBelow is the length of a run up to which the space behind it is filled with zeros.
	zerosBelow = 64 << 10
)

// write writes the appends in the queue until there are none.
func (l *log) write() {
	var done []pending
	for {
		taken := l.take(done)
		if taken == nil {
			return
		}
		l.store.writers <- struct{}{}
		l.store.frozen.RLock()
		l.writing.Lock()
		l.writeAll(taken)
		l.writing.Unlock()
		l.store.frozen.RUnlock()
		<-l.store.writers
		for i := range taken {
			taken[i].done(taken[i].err)
			taken[i] = pending{} // its data may go
		}
		done = taken
	}
}

// take returns the queue, nil if it is empty, and takes an emptied one to use again.
func (l *log) take(emptied []pending) []pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if emptied != nil && cap(emptied) <= runEntries { // one that was very long is not kept
		l.spare = emptied[:0]
	}
	if len(l.queue) == 0 {
		l.busy = false
		if l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
		return nil
	}
	taken := l.queue
	l.queue, l.spare = l.spare, nil
	if errors.Is(l.state, topic.ErrNoLog) {
		refuse(taken, l.state)
	}
	return taken
}

// refuse gives appends an error unless they have one.
func refuse(all []pending, err error) {
	for i := range all {
		if all[i].err == nil {
			all[i].err = err
		}
	}
}

// writeAll writes the appends that were not refused, and sets the errors of the others. The
// caller holds writing.
func (l *log) writeAll(all []pending) {
	for from := 0; from < len(all); {
		if all[from].err != nil {
			from++
			continue
		}
		to, bytes := l.run(all, from)
		if to == from { // it does not fit
			if err := l.roll(); err != nil {
				l.failed(all[from:], err)
				return
			}
			continue
		}
		if err := l.writeRun(all[from:to], bytes); err != nil {
			l.failed(all[from:], err)
			return
		}
		from = to
	}
}

// run returns which appends from one on are written together, and their length with headers.
// They are none if the last segment is full.
func (l *log) run(all []pending, from int) (to int, bytes int64) {
	end := l.active().end
	for to = from; to < len(all) && to-from < runEntries && all[to].err == nil; to++ {
		size := headerBytes + int64(len(all[to].entry.Data))
		if end > preambleBytes && end+bytes+size > l.store.options.SegmentBytes || bytes > 0 && bytes+size > runBytes {
			break
		}
		bytes += size
		end = max(end, preambleBytes+1) // now it has an entry
	}
	return to, bytes
}

// active returns the segment that grows. Only holders of writing change which it is, and its
// end.
func (l *log) active() *segment { return l.segments[len(l.segments)-1] }

// writeRun writes entries at the end of the last segment, and publishes them. An error leaves
// the log as it was.
func (l *log) writeRun(all []pending, bytes int64) error {
	g := l.active()
	if err := g.use(); err != nil {
		return err
	}
	defer g.unuse()
	l.reserve(g, bytes)
	l.encode(g, all)
	written, err := writeAt(g.file, l.buffers, g.end)
	clear(l.buffers)
	if err != nil {
		return l.undo(g, written, err)
	}
	durable := l.durable
	if l.store.options.SyncInterval == 0 {
		if err := g.file.SyncData(); err != nil {
			return err
		}
		durable = g.end + bytes
	}
	l.publish(g, all, durable)
	return nil
}

// encode fills buffers with the frames of entries: their headers, and their data as it is.
func (l *log) encode(g *segment, all []pending) {
	l.headers, l.buffers = l.headers[:0], l.buffers[:0]
	if need := len(all) * headerBytes; cap(l.headers) < need {
		l.headers = make([]byte, 0, need) // it must not move
	}
	for i := range all {
		entry := &all[i].entry
		from, sum := len(l.headers), entry.Sum
		if sum == 0 {
			sum = sumOf(entry.Data)
		}
		l.headers = appendHeader(l.headers, g.salt, frame{
			sequence: entry.Sequence, length: len(entry.Data), sum: sum, durable: l.durable, mark: entry.Mark,
		})
		l.buffers = append(l.buffers, l.headers[from:])
		if len(entry.Data) > 0 {
			l.buffers = append(l.buffers, entry.Data)
		}
	}
}

// reserve gives a segment space on the disk behind a run, so that its blocks lie together. Zeros
// shorten the next syncs, which then change neither the length of the file nor its blocks, if runs
// are short and few logs are written (docs/decisions/0112). It is no error if there is no space: the
// write will say so.
func (l *log) reserve(g *segment, bytes int64) {
	next := g.end + bytes
	if next <= l.reserved {
		return
	}
	l.ahead = min(max(2*l.ahead, reserveMin), reserveMax)
	l.reserved = max(min(next+l.ahead, l.store.options.SegmentBytes), next)
	if few := len(l.store.writers) <= writersMost/4; few && bytes <= zerosBelow && l.store.options.SyncInterval == 0 {
		_ = g.clear(next, l.reserved)
	} else {
		_ = g.file.Preallocate(g.end, l.reserved-g.end)
	}
}

// publish makes written entries visible.
func (l *log) publish(g *segment, all []pending, durable int64) {
	g.mu.Lock()
	at := point{g.next, g.end}
	for i := range all {
		g.addPoint(at)
		at = point{at.sequence + 1, at.position + headerBytes + int64(len(all[i].entry.Data))}
	}
	g.end, g.next = at.position, at.sequence
	g.mu.Unlock()
	l.setDurable(g, durable)
	l.mu.Lock()
	l.last = at.sequence - 1
	l.wake()
	l.mu.Unlock()
}

func (l *log) setDurable(g *segment, durable int64) {
	l.durable = durable
	g.keepPoints(durable, false)
}

// undo clears what a failed write has left behind the end: it would continue the log.
func (l *log) undo(g *segment, written int64, err error) error {
	if written > 0 {
		if failed := g.clear(g.end, g.end+written); failed != nil {
			return errors.Join(&undoError{failed}, err)
		}
	}
	return err
}

// undoError reports that something is left of a failed write.
type undoError struct{ error }

// failed gives appends that were not written, and those in the queue behind them, an error.
// After an error that is not a full disk the log takes no more.
func (l *log) failed(all []pending, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = l.last
	var undo *undoError
	if isFull(err) && !errors.As(err, &undo) {
		err = fmt.Errorf("%w: %w", topic.ErrFull, err)
	} else {
		l.breakLog(err)
		err = fmt.Errorf("%w: %w", topic.ErrUncertain, err)
	}
	refuse(all, err)
	refuse(l.queue, fmt.Errorf("%w: one before it failed: %w", topic.ErrUncertain, err))
}

// breakLog ends appends, and tells the store. The caller holds mu.
func (l *log) breakLog(err error) {
	if l.state == nil {
		l.state = fmt.Errorf("log %s: %w: %w", l.name, ErrBroken, err)
		l.store.fail(l.state)
	}
}

func isFull(err error) bool {
	return vfs.IsNoSpaceError(err) || errors.Is(err, syscall.EDQUOT)
}

// roll closes the last segment and begins a new one. The caller holds writing.
func (l *log) roll() error {
	old := l.active()
	if err := l.seal(old); err != nil {
		return err
	}
	g, err := l.store.createSegment(l.dir, old.next)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.segments = append(l.segments, g)
	l.mu.Unlock()
	l.durable, l.reserved = g.end, 0
	return nil
}

// seal makes the last segment durable, and writes its points. The caller holds writing.
func (l *log) seal(g *segment) error {
	if err := g.use(); err != nil {
		return err
	}
	defer g.unuse()
	if l.durable < g.end {
		if err := g.file.SyncData(); err != nil {
			return err
		}
		l.durable = g.end
	}
	g.keepPoints(l.durable, true)
	return nil
}

// sync makes everything durable that is written. It does not delay appends.
func (l *log) sync() error {
	l.writing.Lock()
	g, end := l.active(), l.active().end
	synced := l.durable >= end
	l.writing.Unlock()
	if synced {
		return nil
	}
	err := g.use()
	if err == nil {
		err = g.file.SyncData()
		defer g.unuse()
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	switch {
	case errors.Is(err, errGone): // deleted, or trimmed and therefore durable
	case err != nil:
		l.mu.Lock()
		l.breakLog(err)
		l.mu.Unlock()
		return err
	case l.active() == g:
		l.setDurable(g, max(l.durable, end))
	}
	return nil
}

// close writes what is to be known when the log is opened again.
func (l *log) close() error {
	l.drain()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	broken := errors.Is(l.state, ErrBroken)
	l.mu.Unlock()
	var err error
	if !broken {
		err = l.seal(l.active())
	}
	l.retire()
	return err
}

// retire closes the files of all segments.
func (l *log) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.segments {
		g.retire()
	}
}

// writeEach writes buffers one after another, and returns how much was written.
func writeEach(file vfs.File, buffers [][]byte, at int64) (written int64, err error) {
	for _, b := range buffers {
		n, err := file.WriteAt(b, at+written)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
