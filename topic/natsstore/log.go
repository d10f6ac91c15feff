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

	"github.com/sluice-project/sluice/topic"
)

// EntryTooLargeError says that an entry has more data than a message can carry.
type EntryTooLargeError struct {
	// Bytes is how much it has; at most MaxEntryBytes are allowed.
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
	answers string // the start of its reply subjects
	small   bool   // it is the metadata, which may use a part of the reserve
	created time.Time

	// send is held while an append gets its number and is sent: the queue has
	// the order of the wire.
	send    sync.Mutex
	message nats.Msg // used again for each append
	header  [2][]string

	mu    sync.Mutex
	state error // nil, topic.ErrClosed or topic.ErrNoLog
	queue queue
	timer *time.Timer // for the append that waits longest
	// delivering says that a goroutine calls dones, so that none else does.
	delivering bool
	// doomed are the appends with a lower number: one before them failed.
	doomed uint64
	// drained is closed when the queue is empty; made by who waits for it.
	drained chan struct{}
	// last is the highest sequence known to be there, moved is closed when it
	// grows or the log ends; made by who waits for it.
	last  uint64
	moved chan struct{}
	// begin is where the log began at least when it was looked at last.
	begin uint64
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

// Append sends an entry. It returns when it was handed to the engine; the bound
// on appends under way is the caller's, up to 10,000 and 128 MiB of one log:
// above that the engine refuses, as if they were fenced; in a cluster such an
// append is uncertain after Options.Timeout.
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

// enter puts an append into the queue and returns its number, and why the log
// takes no more.
func (l *log) enter(now time.Time, entry topic.Entry, done func(error)) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.empty() {
		l.timer.Reset(l.nextLook(l.store.options.Timeout))
	}
	return l.queue.push(underway{entry: entry, done: done, entered: now, sent: 1, follows: l.queue.follows(entry.Sequence, l.last)}), l.state
}

// publish sends an append, with send held.
func (l *log) publish(now time.Time, number uint64, entry topic.Entry) error {
	if entry.Sequence == 0 {
		return fmt.Errorf("%w: sequence 0: want 1 or more", topic.ErrFenced)
	}
	if len(entry.Data) > MaxEntryBytes {
		return &EntryTooLargeError{Bytes: len(entry.Data)}
	}
	check := l.store.disk.check
	if l.small || len(entry.Data) == 0 {
		check = l.store.disk.checkSmall // without it nobody could go on to read and trim
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

// refuse answers an append that was not sent. Its done, and those of the ones
// before it, come from another goroutine than the caller's.
func (l *log) refuse(number uint64, err error) {
	l.mu.Lock()
	l.queue.answer(number, err)
	l.mu.Unlock()
	go l.deliver()
}

// answer takes the engine's answer to an append.
func (l *log) answer(number uint64, message *nats.Msg) {
	sequence, err := parseAnswer(message)
	if isFenced(err) && l.dispute(number, err) {
		return
	}
	l.answered(number, sequence, l.store.unknown(err))
}

// advance notes, with mu held, that the log reaches up to a sequence.
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

// deliver calls the dones of all appends that are answered and have none
// unanswered before them.
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
			l.doomed = l.queue.next()
		case number < l.doomed:
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

// expire fails the append that waited too long, and all after it; in a cluster they
// are sent again before.
func (l *log) expire() {
	l.mu.Lock()
	if l.queue.empty() {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	if left := l.store.options.Timeout - now.Sub(l.queue.head().entered); left > 0 {
		l.timer.Reset(l.nextLook(left))
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

// end makes all calls from now on fail with an error.
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

// abandon fails the appends under way.
func (l *log) abandon(err error) {
	l.mu.Lock()
	l.queue.fail(err)
	l.mu.Unlock()
	l.deliver()
}

// drain waits until no append is under way: at most until they time out.
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

// ended returns why the log takes no more calls, or nil.
func (l *log) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// failure names an error of a call that was under way when the log ended.
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
	l.begin = max(l.begin, first)
	l.mu.Unlock()
	return first, state.LastSeq, nil
}

// info asks for the stream. One of that name that was made later, after another
// node of a cluster had deleted it, is not this log. There a leader that was
// deposed, and has not heard of it, may answer: what it says is not believed if
// more is known to be there.
func (l *log) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	if l.store.cluster == nil {
		return l.stream.Info(ctx)
	}
	l.mu.Lock()
	known := l.last
	l.mu.Unlock()
	err = l.store.attempts(ctx, func(ctx context.Context) (err error) {
		info, err = l.store.info(ctx, l.source)
		switch {
		case err != nil:
		case !info.Created.Equal(l.created):
			err = jetstream.ErrStreamNotFound
		case info.State.LastSeq < known:
			err = fmt.Errorf("%w: it is said to end at entry %d, and has %d", errOutdated, info.State.LastSeq, known)
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
	// A purge beyond the end would move it.
	if before = min(before, last+1); before <= first {
		return nil
	}
	ctx, cancel := l.store.bound(ctx)
	defer cancel()
	err = l.store.attempts(ctx, func(ctx context.Context) error {
		return l.stream.Purge(ctx, jetstream.WithPurgeSequence(before))
	})
	if err != nil {
		return l.failure(fmt.Errorf("trim log %s: %w", l.name, err))
	}
	l.mu.Lock()
	l.begin = max(l.begin, before)
	l.mu.Unlock()
	return nil
}

// The pauses between looks at a log's end, for an append whose answer was lost.
const (
	waitLookMin = 100 * time.Millisecond
	waitLookMax = 2 * time.Second
)

// Wait returns when the log's last sequence is at least that. It is woken by
// appends; those whose answer was lost it sees within 2 s.
func (l *log) Wait(ctx context.Context, sequence uint64) error {
	pause := waitLookMin
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
			pause = min(2*pause, waitLookMax)
			look.Reset(pause)
		}
	}
}

// bound gives a call that has no deadline the store's timeout.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.Timeout)
}
