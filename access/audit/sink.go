package audit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// QueueSize is how many entries wait for the file, and how many for the publisher.
	QueueSize = 4096

	batchSize  = 64 // of entries that are written together
	retryAfter = time.Second
	writeTime  = 3 * time.Second // bounds an attempt, and so the stop of the server
)

// sink is the queue of what entries are written to.
type sink struct {
	name   string
	logger *slog.Logger
	write  func(ctx context.Context, entries []Entry) error
	// counted returns an entry for lost ones.
	counted func(lost int64) Entry
	queue   chan Entry
	lost    atomic.Int64
}

// add puts an entry in the queue, or counts it if that is full.
func (s *sink) add(e Entry) {
	select {
	case s.queue <- e:
	default:
		s.lost.Add(1)
	}
}

// run writes until ctx ends, and then what is still in the queue.
func (s *sink) run(ctx context.Context) error {
	for {
		batch := s.next(ctx)
		if len(batch) == 0 || !s.deliver(ctx, batch) {
			return nil
		}
	}
}

// next waits for entries. It returns none when ctx has ended and the queue is empty.
func (s *sink) next(ctx context.Context) []Entry {
	var batch []Entry
	select {
	case e := <-s.queue:
		batch = append(batch, e)
	case <-ctx.Done():
	}
	for len(batch) < batchSize-1 {
		select {
		case e := <-s.queue:
			batch = append(batch, e)
			continue
		default:
		}
		break
	}
	if lost := s.lost.Swap(0); lost > 0 {
		batch = append(batch, s.counted(lost))
	}
	return batch
}

// deliver writes a batch, again and again until it succeeds. It returns false if ctx has ended before.
func (s *sink) deliver(ctx context.Context, batch []Entry) bool {
	for failed := false; ; failed = true {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
		err := s.write(attempt, batch)
		cancel()
		switch {
		case err == nil && failed:
			s.logger.Info("the audit trail is written again", "to", s.name)
			return true
		case err == nil:
			return true
		case ctx.Err() != nil:
			s.logger.Error("the last entries of the audit trail are lost", "to", s.name, "entries", len(batch)+len(s.queue), "error", err)
			return false
		case !failed:
			s.logger.Error("the audit trail cannot be written: entries wait, and are counted once there are too many", "to", s.name, "error", err)
		}
		lifecycle.Sleep(ctx, nil, retryAfter)
	}
}
