package natsstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// The pauses between looks for the entry of a disputed append.
const (
	disputeLookMin = 2 * time.Millisecond
	disputeLookMax = 100 * time.Millisecond
)

// dispute tells whether an append that was refused may be written all the same. In
// a cluster it may: a leader that was deposed, and has not heard of it, gets appends
// too, beside the one that leads, and refuses them by what it knows. Its answer
// can be the first. So the log is asked whose entry it has there.
func (l *log) dispute(number uint64, refused error) bool {
	if l.store.cluster == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.queue.at(number)
	if item == nil || item.answered || item.disputed {
		return true // nobody waits for this answer
	}
	if !item.follows {
		return false
	}
	item.disputed = true
	entry := sumOf(item.entry) // its data is the caller's again when it is answered
	l.store.cluster.work.Go("look for an append", func(ctx context.Context) error {
		l.resolve(ctx, number, entry, refused)
		return nil
	})
	return true
}

// entrySum is what an entry is known by.
type entrySum struct {
	sequence uint64
	mark     topic.Mark
	data     [sha256.Size]byte
}

func sumOf(entry topic.Entry) entrySum {
	return entrySum{sequence: entry.Sequence, mark: entry.Mark, data: sha256.Sum256(entry.Data)}
}

// resolve answers a disputed append when the log has an entry in its place, unless
// who leads answers before. Until then it may be written yet.
func (l *log) resolve(ctx context.Context, number uint64, entry entrySum, refused error) {
	for pause := disputeLookMin; l.awaits(number); pause = min(2*pause, disputeLookMax) {
		entries, err := l.read(ctx, entry.sequence, 1)
		switch {
		case err != nil || len(entries) == 0: // who was asked may not have it yet
		case entries[0].Sequence > entry.sequence:
			l.answered(number, 0, fmt.Errorf("%w: what is there was removed: %w", topic.ErrUncertain, refused))
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

// answered notes what came of an append, and that the log reaches up to a sequence.
func (l *log) answered(number, sequence uint64, err error) {
	l.mu.Lock()
	l.queue.answer(number, err)
	l.advance(sequence)
	l.mu.Unlock()
	l.deliver()
}

// awaits tells whether an append is not answered yet.
func (l *log) awaits(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.queue.at(number)
	return item != nil && !item.answered
}
