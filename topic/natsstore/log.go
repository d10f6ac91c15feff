package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// EntryTooLargeError says that an entry has more data than fits in a message.
type EntryTooLargeError struct {
	// Bytes is the length of its data; the maximum is MaxEntryBytes.
	Bytes int
}

func (e *EntryTooLargeError) Error() string {
	return fmt.Sprintf("entry has %d bytes: want at most %d", e.Bytes, MaxEntryBytes)
}

// log is a topic.Log: a stream.
type log struct {
	store   *Store
	name    string // in errors
	source  string // the stream's name
	token   uint64
	stream  jetstream.Stream
	answers string // the prefix of its reply subjects
	small   bool   // it is the metadata, which may use half of the disk reserve
	created time.Time

	// send is held while an append gets its number and is sent, so that the queue has
	// the order of the connection.
	send    sync.Mutex
	message nats.Msg // reused for each append
	header  [2][]string

	mu    sync.Mutex
	state error // nil, topic.ErrClosed or topic.ErrNoLog
	queue queue
	timer *time.Timer // for the oldest append
	// delivering says that a goroutine is calling dones.
	delivering bool
	// failedBelow are the appends with a lower number: one before them failed.
	failedBelow uint64
	// drained is closed when the queue is empty; nil if nobody waits.
	drained chan struct{}
	// last is the highest sequence that the log is known to have. moved is closed when
	// it grows or the log is closed; nil if nobody waits.
	last  uint64
	moved chan struct{}
	// first is the first sequence, as last seen: entries before it were trimmed.
	first uint64
}

var _ topic.Log = (*log)(nil)

func newLog(s *Store, name, subject string, token uint64, stream jetstream.Stream) *log {
	info := stream.CachedInfo()
	l := &log{
		store: s, name: name, source: info.Config.Name, token: token, stream: stream,
		answers: s.answers + strconv.FormatUint(token, 10) + ".",
		header:  [2][]string{{""}, {""}},
		last:    info.State.LastSeq,
		created: info.Created,
	}
	l.message = nats.Msg{
		Subject: subject,
		Header:  nats.Header{server.JSExpectedLastSeq: l.header[0], markHeader: l.header[1]},
	}
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	return l
}

// Append sends an entry, and returns when the engine has it. The caller bounds the appends
// in flight. Above 10,000 or 128 MiB of one log the engine refuses them, as if they were
// fenced; in a cluster such an append is uncertain after Options.Timeout.
func (l *log) Append(entry topic.Entry, done func(error)) {
	l.send.Lock()
	defer l.send.Unlock()
	now := time.Now()
	number, err := l.enter(now, entry, done)
	if err == nil {
		err = l.publish(now, number, entry)
	}
	if err != nil {
		l.refuse(number, err)
	}
}

// enter puts an append into the queue and returns its number, and the reason if the log
// takes no appends.
func (l *log) enter(now time.Time, entry topic.Entry, done func(error)) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.empty() {
		l.timer.Reset(l.nextCheck(l.store.options.Timeout))
	}
	return l.queue.push(pendingAppend{entry: entry, done: done, entered: now, sent: 1, follows: l.queue.follows(entry.Sequence, l.last)}), l.state
}

// publish sends an append. The caller holds send.
func (l *log) publish(now time.Time, number uint64, entry topic.Entry) error {
	if entry.Sequence == 0 {
		return fmt.Errorf("%w: sequence 0: want 1 or more", topic.ErrFenced)
	}
	if len(entry.Data) > MaxEntryBytes {
		return &EntryTooLargeError{Bytes: len(entry.Data)}
	}
	check := l.store.disk.check
	if l.small || len(entry.Data) == 0 {
		check = l.store.disk.checkSmall // or a full disk could not be read and trimmed
	}
	if err := check(now, len(entry.Data)); err != nil {
		return err
	}
	var reply [128]byte
	l.header[0][0] = strconv.FormatUint(entry.Sequence-1, 10)
	l.header[1][0] = encodeMark(entry.Mark)
	l.message.Reply = string(strconv.AppendUint(append(reply[:0], l.answers...), number, 10))
	l.message.Data = entry.Data
	err := l.store.conn.PublishMsg(&l.message)
	l.message.Data = nil
	if err != nil {
		// Part of it may have gone out.
		return fmt.Errorf("%w: %w", topic.ErrUncertain, err)
	}
	return nil
}

// refuse fails an append that was not sent. Another goroutine calls the dones, its own and
// those before it.
func (l *log) refuse(number uint64, err error) {
	l.mu.Lock()
	l.queue.answer(number, err)
	l.mu.Unlock()
	go l.deliver()
}

// answer handles the engine's answer to an append.
func (l *log) answer(number uint64, message *nats.Msg) {
	sequence, err := parseAnswer(message)
	if isFenced(err) && l.mayBeStale(number, err) {
		return
	}
	l.answered(number, sequence, l.ofOneSend(number, l.store.withoutLeader(err)))
}

// advance records that the log ends at sequence or later. The caller holds mu.
func (l *log) advance(sequence uint64) {
	if sequence <= l.last {
		return
	}
	l.last = sequence
	l.wake()
}

func (l *log) wake() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// deliver calls the dones of all appends that have an outcome and no pending append before
// them.
func (l *log) deliver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivering {
		return
	}
	l.delivering = true
	for {
		item, number, ok := l.queue.pop()
		if !ok {
			break
		}
		err := item.err
		switch {
		case err != nil:
			l.failedBelow = l.queue.next()
		case number < l.failedBelow:
			err = fmt.Errorf("%w: one before it failed", topic.ErrUncertain)
		}
		l.mu.Unlock()
		item.done(err)
		l.mu.Lock()
	}
	l.delivering = false
	if l.queue.empty() {
		l.timer.Stop()
		if l.drained != nil {
			close(l.drained)
			l.drained = nil
		}
	}
}

// expire fails the oldest append and all after it if it has waited for Options.Timeout. In
// a cluster it sends them again before that.
func (l *log) expire() {
	l.mu.Lock()
	if l.queue.empty() {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	if left := l.store.options.Timeout - now.Sub(l.queue.head().entered); left > 0 {
		l.timer.Reset(l.nextCheck(left))
		l.mu.Unlock()
		if l.store.cluster != nil {
			l.resend(now)
		}
		return
	}
	l.queue.fail(fmt.Errorf("%w: after %v", topic.ErrUncertain, l.store.options.Timeout))
	l.mu.Unlock()
	l.deliver()
}

// end makes all later calls fail with an error.
func (l *log) end(state error) {
	l.send.Lock()
	defer l.send.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		l.state = state
	}
	l.wake()
}

// abandon fails the appends in flight.
func (l *log) abandon(err error) {
	l.mu.Lock()
	l.queue.fail(err)
	l.mu.Unlock()
	l.deliver()
}

// drain waits until no append is in flight, at most until they time out.
func (l *log) drain() {
	l.mu.Lock()
	if l.queue.empty() && !l.delivering {
		l.mu.Unlock()
		return
	}
	if l.drained == nil {
		l.drained = make(chan struct{})
	}
	drained := l.drained
	l.mu.Unlock()
	<-drained
}

// ended returns the error that calls fail with since end, or nil.
func (l *log) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// failure maps the error of a call to topic's errors: the log's own if it has ended.
func (l *log) failure(err error) error {
	if state := l.ended(); state != nil {
		return state
	}
	return l.store.failure(err)
}

// Ends returns the first and the last sequence.
func (l *log) Ends(ctx context.Context) (first, last uint64, err error) {
	if err := l.ended(); err != nil {
		return 0, 0, err
	}
	ctx, cancel := l.store.bound(ctx)
	defer cancel()
	info, err := l.info(ctx)
	if err != nil {
		return 0, 0, l.failure(fmt.Errorf("ends of log %s: %w", l.name, err))
	}
	state := info.State
	if first = state.FirstSeq; state.Msgs == 0 {
		first = state.LastSeq + 1
	}
	l.mu.Lock()
	l.advance(state.LastSeq)
	l.first = max(l.first, first)
	l.mu.Unlock()
	return first, state.LastSeq, nil
}

// info returns the stream's state. A stream of that name that was made later, after
// another node had deleted this one, is another log. A former leader may answer too: its
// answer is rejected if the log is known to have more entries.
func (l *log) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	if l.store.cluster == nil {
		return l.stream.Info(ctx)
	}
	l.mu.Lock()
	known := l.last
	l.mu.Unlock()
	err = l.store.retry(ctx, func(ctx context.Context) (err error) {
		info, err = l.store.info(ctx, l.source)
		switch {
		case err != nil:
		case !info.Created.Equal(l.created):
			err = jetstream.ErrStreamNotFound
		case info.State.LastSeq < known:
			err = fmt.Errorf("%w: it ends the log at entry %d, and %d is known", errStale, info.State.LastSeq, known)
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) && l.source != metaStream {
		l.store.forget(l.name, l)
	}
	return info, err
}

// Trim removes the entries before a sequence.
func (l *log) Trim(ctx context.Context, before uint64) error {
	first, last, err := l.Ends(ctx)
	if err != nil {
		return err
	}
	// A purge beyond the end would change the next sequence.
	if before = min(before, last+1); before <= first {
		return nil
	}
	ctx, cancel := l.store.bound(ctx)
	defer cancel()
	for {
		err = l.store.retry(ctx, func(ctx context.Context) error {
			return l.stream.Purge(ctx, jetstream.WithPurgeSequence(before))
		})
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			break
		}
		// A node that has not yet heard of a new stream says the same of it as of a
		// deleted one. The stream's own nodes know.
		if _, _, gone := l.Ends(ctx); gone != nil {
			return gone
		}
		if !lifecycle.Sleep(ctx, nil, 20*time.Millisecond) {
			break
		}
	}
	if err != nil {
		return l.failure(fmt.Errorf("trim log %s: %w", l.name, err))
	}
	l.mu.Lock()
	l.first = max(l.first, before)
	l.mu.Unlock()
	return nil
}

// Sync implements [topic.Syncer]: the engine has fsynced everything twice an interval after it was
// acknowledged, at the latest, on each node that has it.
func (l *log) Sync(ctx context.Context) error {
	if interval := l.store.options.SyncInterval; interval > 0 && !lifecycle.Sleep(ctx, nil, 2*interval) {
		return ctx.Err()
	}
	return l.ended()
}

// The backoff between checks of a log's end, for appends whose answer was lost.
const (
	waitPauseMin = 100 * time.Millisecond
	waitPauseMax = 2 * time.Second
)

// Wait returns when the log's last sequence is at least sequence. Appends wake it; it sees
// an append whose answer was lost within 2 s.
func (l *log) Wait(ctx context.Context, sequence uint64) error {
	pause := waitPauseMin
	look := time.NewTimer(pause)
	defer look.Stop()
	for {
		l.mu.Lock()
		if l.state != nil || l.last >= sequence {
			defer l.mu.Unlock()
			return l.state
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-look.C:
			if _, _, err := l.Ends(ctx); err != nil && (errors.Is(err, topic.ErrNoLog) || errors.Is(err, topic.ErrClosed)) {
				return err
			}
			pause = min(2*pause, waitPauseMax)
			look.Reset(pause)
		}
	}
}

// bound limits a call to Options.Timeout.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.Timeout)
}
