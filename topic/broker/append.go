package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
)

// An append is numbered at once and is then pending, until it is written together
// with all other pending appends as one entry. While an entry is on its way to the
// disk, the next one collects: this is the group commit. A few large entries may be
// in flight in parallel, so that the disk does not wait for us.
const (
	// largeBytes is how much must be pending to be written while other entries are
	// in flight; flightsMax bounds the entries in flight.
	largeBytes = 256 << 10
	flightsMax = 4

	// Where another node may lead, one entry is in flight, and may be larger. With two, the first
	// could be lost with its leader, and the second could arrive after the next leader
	// has written in place of the first: it would name the right sequence, but omit the
	// lost entry. With one, the leader knows all entries before its own in any case.
	clusterEntryBytes = 2 << 20
)

// appends holds the appends of a partition that are not durable yet.
type appends struct {
	pending      []*Appending
	pendingBytes int
	flights      []*flight
	flightBytes  int
	// room is closed and replaced when bytes have become durable.
	room chan struct{}
	// linger runs while an idle partition waits for more appends.
	linger *time.Timer
	// broken counts the failures. It distinguishes appends that were in flight
	// before a failure from later ones.
	broken uint64
}

// last returns the append that will be durable last, or nil.
func (s *appends) last() *Appending {
	if n := len(s.pending); n > 0 {
		return s.pending[n-1]
	}
	if n := len(s.flights); n > 0 {
		return s.flights[n-1].appends[0] // all appends of an entry land together
	}
	return nil
}

// flight is an entry in flight to the log.
type flight struct {
	entry    topic.Entry
	appends  []*Appending
	attempt  uint64 // appends.broken at the start
	released int64
}

// Appending is an append that is not durable yet.
type Appending struct {
	batches  []topic.Batch
	bytes    int
	released int64
	// additions are the delayed records of its batches; repeated reports whether
	// it was appended before.
	additions []*delay.Addition
	repeated  bool
	// proof is of the transaction of its batch.
	proof proof

	base, time int64
	done       chan struct{}
	err        error
}

// Wait waits until all records are durable. It returns the offset of the first
// record, and the time of the append in milliseconds if the topic uses it for
// timestamps (NoTimestamp otherwise). Without an error, the broker no longer uses
// the memory of the batches.
func (a *Appending) Wait(ctx context.Context) (base, appendTime int64, err error) {
	select {
	case <-a.done:
		return a.base, a.time, a.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// finish reports the append's result to its waiters.
func (a *Appending) finish(err error) {
	a.settle(err)
	a.err = err
	close(a.done)
}

// checkBatches returns an error if batches of a producer cannot be appended.
func checkBatches(batches []topic.Batch, settings topic.Settings, now int64) error {
	total := 0
	for _, b := range batches {
		total += len(b)
		id, _, sequence := b.Producer()
		switch {
		case b.Count() == 0 || b.Count() != b.LastDelta()+1:
			return fmt.Errorf("%w: a batch of %d records in %d offsets", topic.ErrInvalidRecord, b.Count(), b.LastDelta()+1)
		case b.Control():
			return fmt.Errorf("%w: only brokers write control batches", topic.ErrInvalidRecord)
		case b.Transactional() && id < 0:
			return fmt.Errorf("%w: a batch of a transaction without a producer", topic.ErrInvalidRecord)
		case id >= 0 && sequence < 0:
			return fmt.Errorf("%w: producer %d without a sequence number", topic.ErrInvalidRecord, id)
		case id >= 0 && len(batches) > 1:
			return fmt.Errorf("%w: %d batches of an idempotent producer in one request, want 1", topic.ErrInvalidRecord, len(batches))
		}
		if err := checkSize(len(b), settings); err != nil {
			return err
		}
		if err := checkTimestamp(b, settings, now); err != nil {
			return err
		}
		if err := b.Check(); err != nil {
			return err
		}
	}
	if len(batches) == 0 {
		return fmt.Errorf("%w: no batch", topic.ErrInvalidRecord)
	}
	return checkTotal(batches, total)
}

// validate returns an error if the records of a producer's batches are not what the
// batches' headers say, which consumers and views would stumble over. It corrects the
// highest timestamp, as Kafka does, since records are found by it, and replaces batches
// that the topic keeps with another codec.
func (b *Broker) validate(ctx context.Context, batches []topic.Batch, settings topic.Settings, now int64) error {
	total := 0
	for i, batch := range batches {
		err := b.unpacker.Unpack(ctx, batch.Compression(), batch[topic.RecordsAt:], func(data []byte) error {
			highest, err := batch.Validate(data)
			if err == nil && settings.Compact {
				err = batch.CheckKeys(data)
			}
			if err == nil && highest != batch.MaxTimestamp() && !settings.LogAppendTime && !batch.LogAppendTime() {
				batch.SetMaxTimestamp(highest)
				err = checkTimestamp(batch, settings, now)
			}
			if err == nil {
				batches[i], err = kept(batch, data, settings)
			}
			return err
		})
		if errors.Is(err, topic.ErrCorrupt) { // as it was sent: a retry would not help
			err = fmt.Errorf("%w: its records do not decompress: %w", topic.ErrInvalidRecord, err)
		}
		if err != nil {
			return err
		}
		total += len(batches[i])
	}
	return checkTotal(batches, total)
}

// kept returns a batch with the codec that its topic keeps batches with. The data are its
// records without compression.
func kept(batch topic.Batch, data []byte, settings topic.Settings) (topic.Batch, error) {
	codec := settings.Compression.Codec(batch.Compression())
	if codec == batch.Compression() {
		return batch, nil
	}
	if codec == topic.CodecNone { // its size is known: it need not be made
		if err := checkSize(topic.BatchOverhead+len(data), settings); err != nil {
			return nil, err
		}
	}
	made, err := batch.Recompressed(codec, data)
	if err != nil {
		return nil, err
	}
	return made, checkSize(len(made), settings)
}

func checkSize(bytes int, settings topic.Settings) error {
	if bytes > int(settings.MaxMessageBytes) {
		return fmt.Errorf("%w: %d bytes, the topic's max.message.bytes is %d", topic.ErrRecordTooLarge, bytes, settings.MaxMessageBytes)
	}
	return nil
}

// checkTotal returns an error if batches do not fit in one entry, which they become.
func checkTotal(batches []topic.Batch, total int) error {
	if total > topic.MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes in %d batches, want at most %d at once", topic.ErrRecordTooLarge, total, len(batches), topic.MaxBatchBytes)
	}
	return nil
}

func checkTimestamp(b topic.Batch, settings topic.Settings, now int64) error {
	if !settings.LogAppendTime && b.MaxTimestamp() > now+topic.TimestampAhead.Milliseconds() {
		return fmt.Errorf("%w: %d is more than %v after the broker's %d", topic.ErrInvalidTimestamp, b.MaxTimestamp(), topic.TimestampAhead, now)
	}
	return nil
}

// append numbers batches and starts writing them. Released is the number of the
// release of delayed records that the batches are, 0 for none.
func (p *Partition) append(ctx context.Context, batches []topic.Batch, released int64, additions ...*delay.Addition) (*Appending, error) {
	a := newAppending(batches)
	a.released, a.additions = released, additions
	return a, p.enter(ctx, a)
}

// enter makes an append pending.
func (p *Partition) enter(ctx context.Context, a *Appending) error {
	if err := p.lockWithRoom(ctx); err != nil {
		return err
	}
	defer p.mu.Unlock()
	return p.enterLocked(a)
}

func newAppending(batches []topic.Batch) *Appending {
	a := &Appending{batches: batches, time: topic.NoTimestamp, done: make(chan struct{})}
	for _, b := range batches {
		a.bytes += len(b)
	}
	return a
}

// enterLocked makes an append pending. The lock is held.
func (p *Partition) enterLocked(a *Appending) error {
	if err := p.allowsLocked(); err != nil {
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

// again returns an append for a single batch that was appended before, so that
// nothing is left to write; nil if it was not, or if appends are refused now.
func (p *Partition) again(batches []topic.Batch) *Appending {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, repeated, _ := p.producers.check(batches[0]); !repeated || len(batches) != 1 {
		return nil
	}
	a := newAppending(batches)
	if p.enterLocked(a) != nil {
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

// assign numbers each batch. A batch that was numbered before keeps its place and
// is not written again.
func (p *Partition) assign(a *Appending) error {
	now := time.Now().UnixMilli()
	appendTime := p.topic.Settings().LogAppendTime
	for i, b := range a.batches {
		base, repeated, err := p.checkLocked(b, a.proof, now)
		if err != nil {
			return err
		}
		if repeated {
			a.base, a.batches, a.bytes, a.repeated = base, nil, 0, true
			return nil
		}
		b.Stamp(p.next, p.epoch)
		if appendTime && !b.Control() {
			b.StampTime(now)
			a.time = now
		}
		p.producers.add(b, now)
		p.producers.applied(b, a.proof)
		if i == 0 {
			a.base = p.next
		}
		p.next = b.Next()
	}
	return nil
}

// flushOrLinger writes the pending appends, now or after a wait for more.
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

// flush writes as many pending appends as may be in flight now.
func (p *Partition) flush() {
	s := &p.appends
	for len(s.pending) > 0 && p.state != recovering {
		if len(s.flights) > 0 && s.pendingBytes > 0 && (s.pendingBytes < largeBytes || len(s.flights) >= p.broker.flights) {
			return
		}
		p.take()
	}
}

// take makes one entry of pending appends and passes it to the log.
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
	if bytes == 0 { // repeats: durable when all before them are
		p.after(f.appends)
		return
	}
	f.entry = p.entry(f, bytes)
	s.flights = append(s.flights, f)
	s.flightBytes += bytes
	p.last = point{f.entry.Sequence, f.entry.Mark}
	p.log.Append(f.entry, func(err error) { p.landing(f, err) })
}

// after finishes appends when the entries in flight have landed.
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

// entry joins the batches of a flight.
func (p *Partition) entry(f *flight, bytes int) topic.Entry {
	mark := p.last.Mark
	mark.Base = mark.Next
	mark.Epoch = p.epoch
	mark.Bytes += int64(bytes)
	mark.Released = max(mark.Released, f.released)
	var batches []topic.Batch
	for _, a := range f.appends {
		for _, b := range a.batches {
			mark.Next = b.Next()
			mark.MaxTimestamp = max(mark.MaxTimestamp, timeOf(b))
			batches = append(batches, b)
		}
	}
	data := []byte(batches[0])
	if len(batches) > 1 || p.tail.keeps(bytes) { // then the memory of a request is free when its records are durable
		data = make([]byte, 0, bytes)
		for _, b := range batches {
			data = append(data, b...)
		}
	}
	return topic.Entry{Sequence: p.last.Sequence + 1, Mark: mark, Data: data, Sum: topic.SumOf(batches...)}
}

// timeOf returns the time for retention: now if the records have none. Markers have no
// part in it.
func timeOf(b topic.Batch) int64 {
	if at := b.MaxTimestamp(); at >= 0 || b.Control() {
		return at
	}
	return time.Now().UnixMilli()
}

// landing is called by the log when an entry is durable or has failed.
func (p *Partition) landing(f *flight, err error) {
	p.mu.Lock()
	if f.attempt != p.appends.broken {
		p.mu.Unlock() // its appends were finished already
		return
	}
	if err != nil {
		p.failLocked(err)
		return
	}
	s := &p.appends
	s.flights = s.flights[1:]
	s.flightBytes -= len(f.entry.Data)
	p.landed = point{f.entry.Sequence, f.entry.Mark}
	p.tail.push(f.entry)
	p.index.add(f.entry)
	p.snapshots.grown(p, f.entry)
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
