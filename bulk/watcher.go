package bulk

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// watchInterval is how often the watcher looks when nothing wakes it, and
	// watchPause the least time between two looks; watchPauseMax is the longest.
	watchInterval = 200 * time.Millisecond
	watchPause    = 10 * time.Millisecond
	watchPauseMax = 500 * time.Millisecond
	// sideBySide is how many actions are moved on at one time: their writes share
	// fsyncs, so that ten thousand actions take seconds.
	sideBySide = 32
	// forgetInterval is how often finished actions are looked for whose
	// retention is over.
	forgetInterval = 10 * time.Minute
	// applyInterval is how often the settings of types are read again, which another
	// instance may have changed.
	applyInterval = 5 * time.Second
)

// watcher drives the status machine: it finds the actions that can move on, in
// whatever state a crash left them. Every move is a compare-and-set, so that
// several watchers do no harm.
func (e *Engine) watcher(ctx context.Context) error {
	var forgot, applied time.Time
	var trouble trouble
	for {
		began := time.Now()
		err := e.watchOnce(ctx)
		if began.Sub(forgot) >= forgetInterval && err == nil {
			forgot = began
			err = e.forgetOld(ctx, began)
		}
		if began.Sub(applied) >= applyInterval && err == nil {
			applied = began
			err = e.applyTypes(ctx)
		}
		if err != nil && !retriable(err) {
			return err
		}
		// With very many actions a look takes long; it gets a fifth of the time.
		pause := max(min(max(watchPause, 4*time.Since(began)), watchPauseMax), trouble.after(e.log, "watch", err))
		if !lifecycle.Sleep(ctx, nil, pause) || !lifecycle.Sleep(ctx, e.watch, watchInterval) {
			return ctx.Err()
		}
	}
}

func (e *Engine) watchOnce(ctx context.Context) error {
	actions, err := e.store.Actions(ctx, ActionFilter{Unfinished: true})
	if err != nil {
		return err
	}
	now := time.Now()
	var movable []*Action
	unfinished := make(map[string]bool, len(actions))
	for i := range actions {
		a := &actions[i]
		unfinished[a.ID] = true
		e.pace.observe(a, now)
		if e.nextMove(a, now) != 0 {
			movable = append(movable, a)
		}
	}
	err = e.moveOn("watch", movable, func(a *Action) error {
		_, err := e.apply(ctx, a.ID, Move{Kind: e.nextMove(a, now)})
		return err
	})
	if err != nil {
		return err
	}
	if len(movable) > 0 {
		// Only now, so that actions which start together are served together.
		e.fetch.wake()
		e.aggregate.wake()
		e.watch.wake()
		e.outbox.wake()
	}
	e.catalog.forget(unfinished)
	e.pace.forget(unfinished)
	return nil
}

// moveOn calls f for actions, some side by side. An action that somebody else has
// moved meanwhile is left alone, and one that fails holds up no other. The error
// is one that the loop cannot go on after.
func (e *Engine) moveOn(loop string, actions []*Action, f func(*Action) error) error {
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, a := range actions {
		group.Go(func() error {
			err := f(a)
			var refused *MoveError
			switch {
			case err == nil || errors.As(err, &refused) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoChange):
				return nil
			case retriable(err):
				e.log.Error(loop, "action", a.ID, "error", err)
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// nextMove is the move that an action is ready for; 0 if none. One that was
// never sealed is canceled when its retention is over.
func (e *Engine) nextMove(a *Action, now time.Time) MoveKind {
	switch {
	case a.Status == Created && e.config.Retention > 0 && now.Sub(a.CreatedAt) >= e.config.Retention:
		return Cancel
	case a.Status == Dispatched && !a.RunAt.After(now):
		return Start
	case a.Status == Running && a.Done() == a.Total:
		return Aggregate
	case a.Status == Canceled && a.InFlight == 0:
		return Drained
	}
	return 0
}

// forgetOld deletes the finished actions whose retention is over.
func (e *Engine) forgetOld(ctx context.Context, now time.Time) error {
	if e.config.Retention < 0 {
		return nil
	}
	const page = 1000
	for after := ""; ; {
		actions, err := e.store.Actions(ctx, ActionFilter{After: after, Limit: page})
		if err != nil {
			return err
		}
		for i := range actions {
			a := &actions[i]
			if a.FinishedAt.IsZero() || now.Sub(a.FinishedAt) < e.config.Retention {
				after = a.ID
				continue
			}
			if _, err := e.store.Move(ctx, a.ID, Move{Kind: Forget}); err != nil {
				return err
			}
		}
		if len(actions) < page {
			return nil
		}
	}
}

// pace measures how fast actions get on.
type pace struct {
	mu sync.Mutex
	of map[string]*progress
}

// progress is what was seen of one action: its rate is that from from to last.
type progress struct {
	total int64
	// next takes from's place when it is paceSpan old.
	from, next, last paceLook
}

// paceLook is how many jobs were done at a time.
type paceLook struct {
	at   time.Time
	done int64
}

// farFuture is how far ahead an estimate goes: an action that does not move is
// given none.
const farFuture = 10 * 365 * 24 * time.Hour

// A rate is measured over paceInterval at least, and over one to two paceSpan when
// an action runs for longer: rate limits start jobs in bursts, which must not show.
const (
	paceInterval = time.Second
	paceSpan     = 15 * time.Second
)

func (p *pace) observe(a *Action, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Status != Running {
		return
	}
	if p.of == nil {
		p.of = map[string]*progress{}
	}
	look := paceLook{at: now, done: a.Done()}
	seen := p.of[a.ID]
	if seen == nil {
		seen = &progress{total: a.Total, from: look, next: look}
		p.of[a.ID] = seen
	}
	if seen.last = look; now.Sub(seen.next.at) >= paceSpan {
		seen.from, seen.next = seen.next, look
	}
}

func (p *pace) finish(id string, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.of[id]
	if seen == nil {
		return time.Time{}
	}
	took, done := seen.last.at.Sub(seen.from.at), seen.last.done-seen.from.done
	if took < paceInterval || done <= 0 {
		return time.Time{}
	}
	left := float64(seen.total-seen.last.done) / float64(done) * took.Seconds()
	if left > farFuture.Seconds() {
		return time.Time{}
	}
	return maxTime(now, seen.last.at.Add(time.Duration(left*float64(time.Second)))).UTC()
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (p *pace) forget(unfinished map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.of {
		if !unfinished[id] {
			delete(p.of, id)
		}
	}
}
