package broker

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// shareTimeout bounds one write of a window, and its loading.
const shareTimeout = 10 * time.Second

// Await returns when a version of the window is durable. All changes since the last write are in one
// write. If a write fails, the window is dropped, and records that were acquired become
// available again.
func (s *Share) Await(ctx context.Context, version uint64) error {
	for {
		s.mu.Lock()
		if s.stored >= version {
			s.mu.Unlock()
			return nil
		}
		if s.ended != nil {
			defer s.mu.Unlock()
			return s.ended
		}
		s.awaited = max(s.awaited, version)
		if !s.writing {
			s.writing, s.written = true, make(chan struct{})
			s.broker.group.Go("write a window of a share group", s.write)
		}
		written := s.written
		s.mu.Unlock()
		select {
		case <-written:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write writes the window until what is awaited is durable. It goes on while the broker stops.
func (s *Share) write(ctx context.Context) error {
	for more := true; more; {
		more = s.writeOnce(context.WithoutCancel(ctx))
	}
	return nil
}

// writeOnce writes the window as it is, and reports whether more is awaited.
func (s *Share) writeOnce(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	s.mu.Lock()
	version, revision := s.version, s.revision
	value, err := s.window.Encode(time.Now(), s.epoch)
	s.mu.Unlock()
	if err == nil {
		revision, err = s.put(ctx, value, revision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broker.log.Warn("window of a share group not written", "group", s.group, "topic", s.topic.name, "partition", s.number, "error", err)
		s.end(fmt.Errorf("%w: %w", topic.ErrRetry, err))
	} else {
		s.stored, s.revision = version, revision
	}
	close(s.written)
	if s.writing = s.ended == nil && s.awaited > s.stored; s.writing {
		s.written = make(chan struct{})
	}
	return s.writing
}

// put replaces the stored window of a revision, and returns the new revision. The error is an
// ErrConflict if another leader has written it, or it was removed.
func (s *Share) put(ctx context.Context, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	meta := s.broker.store.Meta()
	for range catalog.StoreAttempts {
		written, err := meta.Put(ctx, s.key, value, revision, guards...)
		if err == nil || !catalog.Uncertain(err) {
			return written, err
		}
		if err := meta.Sync(ctx); err != nil {
			return 0, err
		}
		item, err := catalog.Get(ctx, meta, s.key)
		switch {
		case err != nil:
			return 0, err
		case item.Revision != revision && bytes.Equal(item.Value, value):
			return item.Revision, nil
		case item.Revision != revision || len(guards) > 0:
			return 0, fmt.Errorf("%w: %q", topic.ErrConflict, s.key)
		}
	}
	return 0, fmt.Errorf("%q: %w, %d times", s.key, topic.ErrConflict, catalog.StoreAttempts)
}

// count adds what has become of records to the metrics. mu is held.
func (s *Share) count() {
	counts := s.window.TakeCounts()
	for outcome, n := range map[string]int{
		"delivered": counts.Delivered, "accepted": counts.Accepted, "released": counts.Released, "rejected": counts.Rejected,
		"expired": counts.Expired, "exhausted": counts.Exhausted,
	} {
		if n > 0 {
			s.broker.metrics.shared.WithLabelValues(outcome).Add(float64(n))
		}
	}
}
