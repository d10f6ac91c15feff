package engine

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// readPause is the shortest time between two reads because of a room, or of a key of a
// ticket or pass, that is not in memory: forgeries must not load the store.
const readPause = 100 * time.Millisecond

// sharedRead reads data of the store into memory: of many concurrent callers one reads for
// all, also while the store does not answer.
type sharedRead struct {
	read func(context.Context) error
	turn chan struct{} // held by the caller that reads

	mu    sync.Mutex
	begun time.Time // when the last read began
	err   error     // its error
}

func newSharedRead(read func(context.Context) error) *sharedRead {
	return &sharedRead{read: read, turn: make(chan struct{}, 1)}
}

// missed reads because something is not in memory that another instance may have made: at
// most every readPause. Earlier callers wait.
func (r *sharedRead) missed(ctx context.Context) error {
	asked := time.Now()
	begun, _ := r.last()
	if !lifecycle.Sleep(ctx, nil, readPause-asked.Sub(begun)) {
		return ctx.Err()
	}
	return r.after(ctx, asked)
}

// after reads, unless a read has begun after a time.
func (r *sharedRead) after(ctx context.Context, asked time.Time) error {
	unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if begun, err := r.last(); begun.After(asked) {
		return err
	}
	begun := time.Now()
	err = r.read(ctx)
	if ctx.Err() == nil { // otherwise it is the caller's failure, not the store's
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun, r.err = begun, err
	}
	return err
}

func (r *sharedRead) last() (begun time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun, r.err
}

// lock keeps others from reading.
func (r *sharedRead) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
