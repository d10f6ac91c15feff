package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/ranks"
)

const (
	// changesPage is how many changes are read at a time.
	changesPage = 1024
	// retryInterval is when a step that failed for now is tried again.
	retryInterval = time.Second
	// maxConcurrent is how many actions advance concurrently. Their writes share
	// fsyncs, so that ten thousand actions take seconds.
	maxConcurrent = 32
)

// agenda is what unfinished actions wait for: the next transition of each, by the time when it
// is due, and the outcomes to reduce. It follows the changes of the store, so a run of the
// watcher or the aggregator costs what changed, and not what there is. It is safe for
// concurrent use.
type agenda struct {
	mu        sync.Mutex
	of        map[string]*step // by the id of the action
	due       ranks.Heap[*step]
	reducible map[string]*bulk.Unfinished
}

// step is a transition that an action makes at a time.
type step struct {
	action string
	kind   bulk.TransitionKind
	at     time.Time
	place  int // in agenda.due
}

func newAgenda() agenda {
	return agenda{
		of: map[string]*step{}, reducible: map[string]*bulk.Unfinished{},
		due: ranks.New(func(s, o *step) bool { return s.at.Before(o.at) }, func(s *step) *int { return &s.place }),
	}
}

// notice reads what has changed into the agenda.
func (e *Engine) notice(ctx context.Context) error {
	g := &e.agenda
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		changes, err := e.store.Changes(ctx, changesPage)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, id := range changes.Ended {
			g.set(id, 0, now)
			delete(g.reducible, id)
			e.estimator.forget(id)
		}
		for i := range changes.Actions {
			a := &changes.Actions[i]
			kind, at := e.nextTransition(a)
			g.set(a.Spec.ID, kind, at)
			if delete(g.reducible, a.Spec.ID); a.Status == bulk.Aggregating || a.Status == bulk.Running && a.Batches-a.Reduced >= reduceBatches {
				kept := *a // without the others
				g.reducible[a.Spec.ID] = &kept
			}
			e.estimator.observe(a, now)
		}
		if !changes.More {
			return nil
		}
	}
}

// set replaces the next step of an action; kind 0 is none. g.mu must be held.
func (g *agenda) set(action string, kind bulk.TransitionKind, at time.Time) {
	if s := g.of[action]; s != nil {
		g.due.Remove(s)
		delete(g.of, action)
	}
	if kind != 0 {
		s := &step{action: action, kind: kind, at: at}
		g.due.Set(s)
		g.of[action] = s
	}
}

// takeDue removes the steps that are due, and returns them.
func (g *agenda) takeDue(now time.Time) (due []*step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := g.due.First(); s != nil && !s.at.After(now); s = g.due.First() {
		g.set(s.action, 0, now)
		due = append(due, s)
	}
	return due
}

// tryAgain returns steps to the agenda, unless their actions have changed.
func (g *agenda) tryAgain(failed []*step, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range failed {
		if g.of[s.action] == nil {
			g.set(s.action, s.kind, at)
		}
	}
}

// takeReducible removes the actions that have outcomes to reduce, and returns them.
func (g *agenda) takeReducible() []*bulk.Unfinished {
	g.mu.Lock()
	defer g.mu.Unlock()
	actions := make([]*bulk.Unfinished, 0, len(g.reducible))
	for _, a := range g.reducible {
		actions = append(actions, a)
	}
	clear(g.reducible)
	return actions
}

// reduceAgain returns actions to the agenda, unless they have changed.
func (g *agenda) reduceAgain(failed []*bulk.Unfinished) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range failed {
		if g.reducible[a.Spec.ID] == nil {
			g.reducible[a.Spec.ID] = a
		}
	}
}

// advance calls f for each of some actions, or of their steps, some concurrently. It ignores
// those that another instance has advanced in the meantime. It returns those that failed for
// now, which it logs, and an error that the loop cannot continue after. When ctx ends it begins no other.
func advance[T any](ctx context.Context, e *Engine, loop string, items []T, f func(T) error) (failed []T, err error) {
	var group errgroup.Group
	errs := make([]error, len(items))
	var begun atomic.Int64
	for range min(maxConcurrent, len(items)) { // each does many: its stack has grown by then
		group.Go(func() error {
			for i := begun.Add(1) - 1; i < int64(len(items)); i = begun.Add(1) - 1 {
				if err := ctx.Err(); err != nil { // a hundred thousand take longer than a loop has to stop
					return err
				}
				err := f(items[i])
				var refused *bulk.TransitionError
				switch {
				case err == nil || errors.As(err, &refused) || errors.Is(err, bulk.ErrNotFound) || errors.Is(err, bulk.ErrNoChange):
				case retriable(err):
					errs[i] = err
				default:
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	var first error
	for i := range items {
		if errs[i] == nil {
			continue
		}
		if failed = append(failed, items[i]); first == nil {
			first = errs[i]
		}
	}
	if first != nil {
		e.log.Error(loop+": some actions could not advance; they are tried again", "actions", len(failed), "first error", first)
	}
	return failed, err
}
