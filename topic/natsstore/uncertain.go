package natsstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// The backoff between reads for the entry of an append that was refused.
const (
	checkPauseMin = 2 * time.Millisecond
	checkPauseMax = 100 * time.Millisecond
)

// mayBeStale reports whether an append that was refused may be written nevertheless, and if
// so starts to check the log. In a cluster a former leader that does not know of its
// successor receives appends too, and refuses them by its own state. Its answer may come
// before the leader's, so the log decides: it has the entry, or another in its place.
func (l *log) mayBeStale(number uint64, refused error) bool {
	if l.store.cluster == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.queue.at(number)
	if item == nil || item.answered || item.checking {
		return true // the append has an outcome, or is being checked
	}
	if !item.follows {
		return false
	}
	item.checking = true
	entry := sumOf(item.entry) // the data belongs to the caller once the append is answered
	l.store.cluster.work.Go("check a refused append", func(ctx context.Context) error {
		l.checkLog(ctx, number, entry, refused)
		return nil
	})
	return true
}

// entrySum identifies an entry.
type entrySum struct {
	sequence uint64
	mark     topic.Mark
	data     [sha256.Size]byte
}

func sumOf(entry topic.Entry) entrySum {
	return entrySum{sequence: entry.Sequence, mark: entry.Mark, data: sha256.Sum256(entry.Data)}
}

// checkLog answers a refused append as soon as the log has an entry in its place, unless
// the leader answers before. Until then the append may still be written.
func (l *log) checkLog(ctx context.Context, number uint64, entry entrySum, refused error) {
	for pause := checkPauseMin; l.isPending(number); pause = min(2*pause, checkPauseMax) {
		entries, err := l.read(ctx, entry.sequence, 1)
		switch {
		case err != nil || len(entries) == 0: // the replica may not have it yet
		case entries[0].Sequence > entry.sequence:
			l.answered(number, 0, fmt.Errorf("%w: the entry at its place was removed: %w", topic.ErrUncertain, refused))
		case sumOf(entries[0]) == entry:
			l.answered(number, entry.sequence, nil)
		default:
			l.answered(number, entries[0].Sequence, refused)
		}
		select {
		case <-ctx.Done():
			l.answered(number, 0, fmt.Errorf("%w: %w", topic.ErrUncertain, ctx.Err()))
		case <-time.After(pause):
		}
	}
}

// answered records an append's outcome, and that the log ends at sequence or later.
func (l *log) answered(number, sequence uint64, err error) {
	l.mu.Lock()
	l.queue.answer(number, err)
	l.advance(sequence)
	l.mu.Unlock()
	l.deliver()
}

// isPending reports whether an append has no answer yet.
func (l *log) isPending(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.queue.at(number)
	return item != nil && !item.answered
}

// resendAfter is how long an append waits for its answer before it is sent again. The wait
// doubles each time, up to Options.Timeout.
const resendAfter = time.Second

// dueForResend reports whether it is time to send an append again.
func (u *pendingAppend) dueForResend(now time.Time) bool {
	return now.Sub(u.entered) >= resendAfter<<u.sent-resendAfter
}

// resend sends all appends in flight again if the oldest is due. The engine silently
// drops appends while a stream gets its first further replicas or another leader, and
// callers would wait for the timeout. Of an append that was sent twice, the log takes one,
// because of its sequence, and refuses the other: see mayBeStale.
func (l *log) resend(now time.Time) {
	l.send.Lock()
	defer l.send.Unlock()
	l.mu.Lock() // no append is answered now, so the data stay valid
	defer l.mu.Unlock()
	if l.state != nil || l.queue.empty() || !l.queue.head().dueForResend(now) {
		return
	}
	for number := l.queue.first; number < l.queue.next(); number++ {
		item := l.queue.at(number)
		if item.answered || !item.follows {
			continue
		}
		item.sent++
		if err := l.publish(now, number, item.entry); err != nil {
			return // an earlier send may still be answered
		}
	}
}

// ofOneSend returns what an answer says of an append: of one that was sent again, a refusal is of
// one send, and another may be written. A fenced one was checked, or never sent again.
func (l *log) ofOneSend(number uint64, err error) error {
	l.mu.Lock()
	item := l.queue.at(number)
	again := item != nil && item.sent > 1
	l.mu.Unlock()
	if err == nil || isFenced(err) || !again {
		return err
	}
	return fmt.Errorf("%w: it was sent more than once, and one answer is: %s", topic.ErrUncertain, err.Error())
}

// nextCheck is when the append that waits longest is looked at again.
func (l *log) nextCheck(left time.Duration) time.Duration {
	if l.store.cluster == nil {
		return left
	}
	return min(left, resendAfter)
}
