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
	// watchInterval is how often the watcher runs when nothing wakes it. Two runs are
	// watchPause to watchPauseMax apart.
	watchInterval = 200 * time.Millisecond
	watchPause    = 10 * time.Millisecond
	watchPauseMax = 500 * time.Millisecond
	// maxConcurrent is how many actions advance concurrently. Their writes share
	// fsyncs, so that ten thousand actions take seconds.
	maxConcurrent = 32
	// forgetInterval is how often actions past their retention are deleted.
	forgetInterval = 10 * time.Minute
	// applyInterval is how often the settings of types and targets are read again, as another
	// instance may have changed them.
	applyInterval = 5 * time.Second
)

// watcher drives the status machine: it finds the actions that are ready for their next
// transition, in whatever state a crash left them. Every transition is a
// compare-and-set, so several watchers do no harm.
func (e *Engine) watcher(ctx context.Context) error {
	var forgot, applied time.Time
	var backoff backoff
	for {
		began := time.Now()
		err := e.watchOnce(ctx)
		if began.Sub(forgot) >= forgetInterval && err == nil {
			forgot = began
			err = e.forgetOld(ctx, began)
		}
		if began.Sub(applied) >= applyInterval && err == nil {
			applied = began
			err = e.applySettings(ctx)
		}
		if err != nil && !retriable(err) {
			return err
		}
		// A run over very many actions takes long: the watcher may use a fifth of the time.
		pause := max(min(max(watchPause, 4*time.Since(began)), watchPauseMax), backoff.after(e.log, "watch", err))
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
	var ready []*Action
	unfinished := make(map[string]bool, len(actions))
	for i := range actions {
		a := &actions[i]
		unfinished[a.ID] = true
		e.estimator.observe(a, now)
		if e.nextTransition(a, now) != 0 {
			ready = append(ready, a)
		}
	}
	err = e.advanceAll("watch", ready, func(a *Action) error {
		_, err := e.apply(ctx, a.ID, Transition{Kind: e.nextTransition(a, now), Total: AtEnd})
		return err
	})
	if err != nil {
		return err
	}
	if len(ready) > 0 {
		// Only now, so that actions that start together are served together.
		e.fetch.Wake()
		e.aggregate.Wake()
		e.watch.Wake()
		e.outbox.Wake()
	}
	e.catalog.forget(unfinished)
	e.estimator.forget(unfinished)
	return nil
}

// advanceAll calls f for actions, some concurrently. It ignores actions that another
// instance has advanced in the meantime, and logs errors that may pass. It returns an
// error that the loop cannot continue after.
func (e *Engine) advanceAll(loop string, actions []*Action, f func(*Action) error) error {
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for _, a := range actions {
		group.Go(func() error {
			err := f(a)
			var refused *TransitionError
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

// nextTransition returns the transition that an action is ready for; 0 if none. An
// action that was never sealed is canceled when its retention is over. A stream is sealed
// when its window is over.
func (e *Engine) nextTransition(a *Action, now time.Time) TransitionKind {
	switch {
	case a.Status == Created && e.config.Retention > 0 && now.Sub(a.CreatedAt) >= e.config.Retention:
		return Cancel
	case a.Status == Dispatched && !a.RunAt.After(now):
		return Start
	case a.Open && !now.Before(e.streams.ends(a)):
		return Seal
	case a.Status == Running && !a.Open && a.Done() == a.Total:
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
			if _, err := e.store.Transition(ctx, a.ID, Transition{Kind: Forget}); err != nil {
				return err
			}
		}
		if len(actions) < page {
			return nil
		}
	}
}

// estimator measures how fast actions progress.
type estimator struct {
	mu sync.Mutex
	of map[string]*progress
}

// progress has samples of one action. Its rate is measured between from and last.
type progress struct {
	total int64
	// next replaces from when it is maxMeasured old.
	from, next, last progressSample
}

// progressSample is the number of jobs that were done at a time.
type progressSample struct {
	at   time.Time
	done int64
}

// farFuture bounds estimates: an action that makes no progress has none.
const farFuture = 10 * 365 * 24 * time.Hour

// A rate is measured over minMeasured at least, and over one to two maxMeasured when an
// action runs for longer: the bursts of rate limits average out.
const (
	minMeasured = time.Second
	maxMeasured = 15 * time.Second
)

func (p *estimator) observe(a *Action, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Status != Running || a.Open {
		return
	}
	if p.of == nil {
		p.of = map[string]*progress{}
	}
	look := progressSample{at: now, done: a.Done()}
	seen := p.of[a.ID]
	if seen == nil {
		seen = &progress{total: a.Total, from: look, next: look}
		p.of[a.ID] = seen
	}
	if seen.last = look; now.Sub(seen.next.at) >= maxMeasured {
		seen.from, seen.next = seen.next, look
	}
}

func (p *estimator) finish(id string, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.of[id]
	if seen == nil {
		return time.Time{}
	}
	took, done := seen.last.at.Sub(seen.from.at), seen.last.done-seen.from.done
	if took < minMeasured || done <= 0 {
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

func (p *estimator) forget(unfinished map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.of {
		if !unfinished[id] {
			delete(p.of, id)
		}
	}
}
