package topic

import (
	"context"
	"fmt"
	"time"
)

// An append is numbered at once and then pending, until it is written together
// with what else is pending as one entry. While an entry is on its way to the
// disk the next one collects: that is the group commit. A few large entries are
// under way side by side, so that the disk does not wait for us.
const (
	// entryBytes is how large an entry becomes at most, unless a single append
	// is larger.
	entryBytes = 1 << 20
	// largeBytes is how much must be pending to be written while other entries
	// are under way, and flightsMax how many may be.
	largeBytes = 256 << 10
	flightsMax = 4

	// In a cluster one entry is under way, and may be larger. With two, the first
	// could be lost with its leader, and the second arrive when the next leader has
	// written in its place: it would name the right sequence, and leave out what
	// was lost. With one, who appends knows all that comes before in any case.
	clusterEntryBytes = 2 << 20
	// timestampAhead is how far in the future a timestamp may be: one far ahead
	// would keep all that follows from being expired.
	timestampAhead = time.Hour
)

// appends are those of a partition that are not durable yet.
type appends struct {
	pending      []*Appending
	pendingBytes int
	flights      []*flight
	flightBytes  int
	// room is closed, and replaced, when bytes became durable.
	room chan struct{}
	// linger is under way while an idle partition waits for more.
	linger *time.Timer
	// broken counts the failures, so that what was under way before one is
	// told from what came after it.
	broken uint64
}

// last returns the append that will be durable last, or nil.
func (s *appends) last() *Appending {
	if n := len(s.pending); n > 0 {
		return s.pending[n-1]
	}
	if n := len(s.flights); n > 0 {
		return s.flights[n-1].appends[0] // all of an entry together
	}
	return nil
}

// flight is an entry under way to the log.
type flight struct {
	entry    Entry
	appends  []*Appending
	attempt  uint64 // appends.broken when it began
	released int64
}

// Appending is an append under way.
type Appending struct {
	batches  []Batch
	bytes    int
	released int64
	// additions are what its batches have delayed; repeated says that it was
	// appended before.
	additions []*Addition
	repeated  bool

	base, time int64
	done       chan struct{}
	err        error
}

// Wait returns the offset of the first record, and the time in milliseconds of
// the append if the topic's timestamps are that (NoTimestamp otherwise), once
// all records are durable.
func (a *Appending) Wait(ctx context.Context) (base, appendTime int64, err error) {
	select {
	case <-a.done:
		return a.base, a.time, a.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// finish tells whoever waits what became of it.
func (a *Appending) finish(err error) {
	a.settle(err)
	a.err = err
	close(a.done)
}

// checkBatches returns why batches of a producer cannot be appended.
func checkBatches(batches []Batch, settings Settings, now int64) error {
	total := 0
	for _, b := range batches {
		total += len(b)
		id, _, sequence := b.Producer()
		switch {
		case len(b) > int(settings.MaxMessageBytes):
			return fmt.Errorf("%w: %d bytes, the topic's max.message.bytes is %d", ErrRecordTooLarge, len(b), settings.MaxMessageBytes)
		case b.Count() == 0 || b.Count() != b.lastDelta()+1:
			return fmt.Errorf("%w: a batch of %d records in %d offsets", ErrInvalidRecord, b.Count(), b.lastDelta()+1)
		case b.Control():
			return fmt.Errorf("%w: only brokers write control batches", ErrInvalidRecord)
		case id >= 0 && sequence < 0:
			return fmt.Errorf("%w: producer %d without a sequence number", ErrInvalidRecord, id)
		case id >= 0 && len(batches) > 1:
			return fmt.Errorf("%w: %d batches of an idempotent producer in one request, want 1", ErrInvalidRecord, len(batches))
		case !settings.LogAppendTime && b.MaxTimestamp() > now+timestampAhead.Milliseconds():
			return fmt.Errorf("%w: %d is more than %v after the broker's %d", ErrInvalidTimestamp, b.MaxTimestamp(), timestampAhead, now)
		}
		if err := b.Check(); err != nil {
			return err
		}
	}
	switch {
	case len(batches) == 0:
		return fmt.Errorf("%w: no batch", ErrInvalidRecord)
	case total > maxBatchBytes: // they become one entry
		return fmt.Errorf("%w: %d bytes in %d batches, want at most %d at once", ErrRecordTooLarge, total, len(batches), maxBatchBytes)
	}
	return nil
}

// append numbers batches, and has them written. Released is the number of the
// release of delayed records that they are, 0 for none.
func (p *Partition) append(ctx context.Context, batches []Batch, released int64, additions ...*Addition) (*Appending, error) {
	a := newAppending(batches)
	a.released, a.additions = released, additions
	if err := p.lockWithRoom(ctx); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if err := p.enter(a); err != nil {
		return nil, err
	}
	return a, nil
}

func newAppending(batches []Batch) *Appending {
	a := &Appending{batches: batches, time: NoTimestamp, done: make(chan struct{})}
	for _, b := range batches {
		a.bytes += len(b)
	}
	return a
}

// enter makes an append pending, with the lock held.
func (p *Partition) enter(a *Appending) error {
	if err := p.allows(); err != nil {
		return err
	}
	if err := p.assign(a); err != nil {
		return err
	}
	p.appends.pending = append(p.appends.pending, a)
	p.appends.pendingBytes += a.bytes
	p.flushOrLinger()
	return nil
}

// again appends a batch that was appended before, of which nothing is left to
// write; nil if it was not, or cannot be now.
func (p *Partition) again(batches []Batch) *Appending {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, repeated, _ := p.producers.check(batches[0]); !repeated || len(batches) != 1 {
		return nil
	}
	a := newAppending(batches)
	if p.enter(a) != nil {
		return nil
	}
	return a
}

// lockWithRoom locks the partition as soon as its appends hold less memory than
// the broker's bound.
func (p *Partition) lockWithRoom(ctx context.Context) error {
	for {
		p.mu.Lock()
		held := int64(p.appends.pendingBytes + p.appends.flightBytes)
		if held < p.broker.config.PendingBytes || p.state != open {
			return nil
		}
		if p.appends.room == nil {
			p.appends.room = make(chan struct{})
		}
		room := p.appends.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// assign gives each batch its place, unless it has one already: then nothing is
// left to write of it.
func (p *Partition) assign(a *Appending) error {
	now := time.Now().UnixMilli()
	appendTime := p.topic.Settings().LogAppendTime
	for i, b := range a.batches {
		base, repeated, err := p.producers.check(b)
		if err != nil {
			return err
		}
		if repeated {
			a.base, a.batches, a.bytes, a.repeated = base, nil, 0, true
			return nil
		}
		b.stamp(p.next, p.epoch)
		if appendTime && !b.Control() {
			b.stampTime(now)
			a.time = now
		}
		p.producers.add(b, now)
		if i == 0 {
			a.base = p.next
		}
		p.next = b.Next()
	}
	return nil
}

// flushOrLinger writes what is pending, now or when it has waited for more.
func (p *Partition) flushOrLinger() {
	s, linger := &p.appends, p.broker.config.Linger
	if linger <= 0 || len(s.flights) > 0 || s.pendingBytes >= largeBytes {
		p.flush()
		return
	}
	if s.linger == nil {
		s.linger = time.AfterFunc(linger, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			s.linger = nil
			p.flush()
		})
	}
}

// flush writes what is pending, as far as it may be under way now.
func (p *Partition) flush() {
	s := &p.appends
	for len(s.pending) > 0 && p.state != recovering {
		if len(s.flights) > 0 && s.pendingBytes > 0 && (s.pendingBytes < largeBytes || len(s.flights) >= p.broker.flights) {
			return
		}
		p.take()
	}
}

// take makes one entry of pending appends, and hands it to the log.
func (p *Partition) take() {
	s := &p.appends
	f := &flight{attempt: s.broken}
	bytes, count := 0, 0
	for count < len(s.pending) && (bytes == 0 || bytes+s.pending[count].bytes <= p.broker.entryBytes) {
		bytes += s.pending[count].bytes
		f.released = max(f.released, s.pending[count].released)
		count++
	}
	f.appends = append(f.appends, s.pending[:count]...)
	s.pending = append(s.pending[:0], s.pending[count:]...)
	s.pendingBytes -= bytes
	if bytes == 0 { // repeats: they are durable when all before them are
		p.after(f.appends)
		return
	}
	f.entry = p.entry(f, bytes)
	s.flights = append(s.flights, f)
	s.flightBytes += bytes
	p.last = point{f.entry.Sequence, f.entry.Mark}
	p.log.Append(f.entry, func(err error) { p.landing(f, err) })
}

// after finishes appends when what is under way has landed.
func (p *Partition) after(appends []*Appending) {
	if flights := p.appends.flights; len(flights) > 0 {
		last := flights[len(flights)-1]
		last.appends = append(last.appends, appends...)
		return
	}
	for _, a := range appends {
		a.finish(nil)
	}
}

// entry puts the batches of a flight together.
func (p *Partition) entry(f *flight, bytes int) Entry {
	mark := p.last.Mark
	mark.Base = mark.Next
	mark.Epoch = p.epoch
	mark.Bytes += int64(bytes)
	mark.Released = max(mark.Released, f.released)
	var only Batch
	batches := 0
	for _, a := range f.appends {
		for _, b := range a.batches {
			mark.Next = b.Next()
			mark.MaxTimestamp = max(mark.MaxTimestamp, timeOf(b))
			only = b
			batches++
		}
	}
	data := []byte(only)
	// A small batch alone may be a small part of a large request's memory.
	if batches > 1 || bytes < largeBytes {
		data = make([]byte, 0, bytes)
		for _, a := range f.appends {
			for _, b := range a.batches {
				data = append(data, b...)
			}
		}
	}
	return Entry{Sequence: p.last.Sequence + 1, Mark: mark, Data: data}
}

// timeOf returns the time that counts for retention: now if the records have none.
func timeOf(b Batch) int64 {
	if at := b.MaxTimestamp(); at >= 0 {
		return at
	}
	return time.Now().UnixMilli()
}

// landing is called by the log when an entry is durable or has failed.
func (p *Partition) landing(f *flight, err error) {
	p.mu.Lock()
	if f.attempt != p.appends.broken {
		p.mu.Unlock() // its appends were told already
		return
	}
	if err != nil {
		p.fail(err)
		return
	}
	s := &p.appends
	s.flights = s.flights[1:]
	s.flightBytes -= len(f.entry.Data)
	p.landed = point{f.entry.Sequence, f.entry.Mark}
	p.tail.push(f.entry)
	p.index.add(f.entry)
	p.snapshots.grown(p, int64(len(f.entry.Data)))
	p.flush()
	p.madeRoom()
	p.mu.Unlock()

	p.watchers.signal()
	for _, a := range f.appends {
		a.finish(nil)
	}
}

func (p *Partition) madeRoom() {
	if p.appends.room != nil {
		close(p.appends.room)
		p.appends.room = nil
	}
}
