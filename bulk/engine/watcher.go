package engine

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// watchInterval is how often the watcher runs when nothing wakes it. Two runs are
	// watchPause to watchPauseMax apart.
	watchInterval = 200 * time.Millisecond
	watchPause    = 10 * time.Millisecond
	watchPauseMax = 500 * time.Millisecond
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
	if err := e.notice(ctx); err != nil {
		return err
	}
	now := time.Now()
	due := e.agenda.takeDue(now)
	if len(due) == 0 {
		return nil
	}
	failed, err := advance(ctx, e, "watch", due, func(s *step) error {
		_, err := e.apply(ctx, s.action, bulk.Transition{Kind: s.kind, Total: bulk.AtEnd})
		return err
	})
	e.agenda.tryAgain(failed, now.Add(retryInterval))
	// Only now, so that actions that start together are served together.
	e.fetch.Wake()
	e.aggregate.Wake()
	e.watch.Wake()
	e.outbox.Wake()
	return err
}

// nextTransition returns the transition that an action makes next without being asked, and the
// time from which on it does; 0 if none follows from its present state. An action that was
// never sealed is canceled when its retention is over. A stream is sealed when its window is
// over.
func (e *Engine) nextTransition(a *bulk.Unfinished) (kind bulk.TransitionKind, at time.Time) {
	switch {
	case a.Status == bulk.Created && e.config.Retention > 0:
		return bulk.Cancel, a.CreatedAt.Add(e.config.Retention)
	case a.Status == bulk.Dispatched:
		return bulk.Start, a.Spec.RunAt
	case a.Open:
		return bulk.Seal, e.streams.ends(a)
	case a.Status == bulk.Running && a.Done == a.Total:
		return bulk.Aggregate, time.Time{}
	case a.Status == bulk.Canceled && a.InFlight == 0:
		return bulk.Drained, time.Time{}
	}
	return 0, time.Time{}
}

// forgetOld deletes the finished actions whose retention is over. Actions are listed in the order
// of their creation, and none finishes before it is created: so it reads those that were created
// longer ago than the retention, and not the others that are kept. Clocks of shards may differ, so
// it ends at a whole page of younger ones.
func (e *Engine) forgetOld(ctx context.Context, now time.Time) error {
	if e.config.Retention < 0 {
		return nil
	}
	const page = 200
	oldest := now.Add(-e.config.Retention)
	for after := ""; ; {
		actions, err := e.store.Actions(ctx, bulk.ActionFilter{After: after, Limit: page})
		if err != nil {
			return err
		}
		var old []string
		more := false
		for i := range actions {
			a := &actions[i]
			if more = more || !a.CreatedAt.After(oldest); a.FinishedAt.IsZero() || a.FinishedAt.After(oldest) {
				after = a.ID
			} else {
				old = append(old, a.ID)
			}
		}
		failed, err := advance(ctx, e, "forget", old, func(id string) error {
			_, err := e.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Forget})
			return err
		})
		if err != nil || len(failed) > 0 {
			return err
		}
		if !more || len(actions) < page {
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

func (p *estimator) observe(a *bulk.Unfinished, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Status != bulk.Running || a.Open {
		return
	}
	if p.of == nil {
		p.of = map[string]*progress{}
	}
	look := progressSample{at: now, done: a.Done}
	seen := p.of[a.Spec.ID]
	if seen == nil && look.done == 0 { // of a million actions that wait nothing is kept
		return
	}
	if seen == nil {
		seen = &progress{total: a.Total, from: look, next: look}
		p.of[a.Spec.ID] = seen
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
	took, done := now.Sub(seen.from.at), seen.last.done-seen.from.done
	if took < minMeasured || done <= 0 {
		return time.Time{}
	}
	left := float64(seen.total-seen.last.done) / float64(done) * took.Seconds()
	if left > farFuture.Seconds() {
		return time.Time{}
	}
	return now.Add(time.Duration(left * float64(time.Second))).UTC()
}

func (p *estimator) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}
