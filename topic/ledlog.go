package topic

import (
	"context"
	"fmt"
	"sync/atomic"
)

// ledLog is the log of a partition in a cluster: it is opened when this broker
// leads it for the first time. Until then every call is an ErrNotLeader.
type ledLog struct {
	store Store
	name  string
	log   atomic.Pointer[Log]
}

// open opens the log; if it does not exist it is made, on those nodes.
func (l *ledLog) open(ctx context.Context, nodes []int32) error {
	if l.log.Load() != nil {
		return nil
	}
	log, err := l.store.OpenLog(ctx, l.name, nodes)
	if err == nil {
		l.log.Store(&log)
	}
	return err
}

func (l *ledLog) get() (Log, error) {
	if log := l.log.Load(); log != nil {
		return *log, nil
	}
	return nil, fmt.Errorf("%w: log %s was not opened", ErrNotLeader, l.name)
}

// Append is Log's.
func (l *ledLog) Append(entry Entry, done func(error)) {
	log, err := l.get()
	if err != nil {
		go done(err)
		return
	}
	log.Append(entry, done)
}

// Read is Log's.
func (l *ledLog) Read(ctx context.Context, from uint64, maxBytes int) ([]Entry, error) {
	log, err := l.get()
	if err != nil {
		return nil, err
	}
	return log.Read(ctx, from, maxBytes)
}

// Trim is Log's.
func (l *ledLog) Trim(ctx context.Context, before uint64) error {
	log, err := l.get()
	if err != nil {
		return err
	}
	return log.Trim(ctx, before)
}

// Ends is Log's.
func (l *ledLog) Ends(ctx context.Context) (first, last uint64, err error) {
	log, err := l.get()
	if err != nil {
		return 0, 0, err
	}
	return log.Ends(ctx)
}

// Wait is Log's.
func (l *ledLog) Wait(ctx context.Context, sequence uint64) error {
	log, err := l.get()
	if err != nil {
		return err
	}
	return log.Wait(ctx, sequence)
}
