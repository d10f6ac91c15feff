package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Group owns goroutines: it gives each a context, waits for them, and keeps
// the first failure. The zero value is not usable; call NewGroup.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	running []string
	err     error
	failed  chan struct{}
	idle    chan struct{} // closed when running becomes empty after cancel
}

// NewGroup returns an empty group. The context of its goroutines has the values of ctx
// but does not end with it: they run until Stop.
func NewGroup(ctx context.Context) *Group {
	g := &Group{failed: make(chan struct{}), idle: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return g
}

// Go runs f in a goroutine with that name. An error of f is a failure of the
// group, except for context.Canceled after Stop. After Stop, Go does nothing.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return
	}
	g.running = append(g.running, name)
	go func() {
		err := f(g.ctx)
		g.ended(name, err)
	}()
}

func (g *Group) ended(name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.running, name)
	g.running = slices.Delete(g.running, at, at+1)
	stopped := g.ctx.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !stopped && g.err == nil {
		g.err = fmt.Errorf("%s: %w", name, err)
		close(g.failed)
	}
	g.closeIfIdle()
}

func (g *Group) closeIfIdle() {
	if g.ctx.Err() == nil || len(g.running) > 0 {
		return
	}
	select {
	case <-g.idle:
	default:
		close(g.idle)
	}
}

// Failed is closed at the first failure; Err then returns it.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Err returns the first failure, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Stop ends the context of all goroutines and waits for them. If ctx ends
// first, the error names those still running. It returns the group's failure,
// if there was one. Stop may be called more than once.
func (g *Group) Stop(ctx context.Context) error {
	g.cancel()
	g.mu.Lock()
	g.closeIfIdle()
	g.mu.Unlock()
	select {
	case <-g.idle:
		return g.Err()
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.running) == 0 {
			return g.err
		}
		return errors.Join(g.err, fmt.Errorf("did not stop in time: %s", strings.Join(g.running, ", ")))
	}
}
