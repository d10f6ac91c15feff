package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// holdMost is how many jobs or actions an operation looks at while it holds s.mu. Larger ones are
// cut, so that calls that read one action do not wait for them.
const holdMost = 256

// inTurn is a mutex that is locked in turn: of those that lock it only one waits for the lock below, so
// that whoever locks that one alone, to read, waits for one operation and not for all that wait. Readers
// share it, and the end of a read hands no processor over to the operation that waits.
type inTurn struct {
	turn sync.Mutex
	then *sync.RWMutex
}

// Lock implements sync.Locker.
func (l *inTurn) Lock() {
	l.turn.Lock()
	l.then.Lock()
}

// Unlock implements sync.Locker. A reader is woken before the next operation.
func (l *inTurn) Unlock() {
	l.then.Unlock()
	l.turn.Unlock()
}

// do runs one operation: f decides and changes memory under the lock, and its writes are
// durable when do returns. If f returns an error, it must have changed nothing.
func (s *Store) do(f func(c *call) error) error {
	wait, err := s.enterCall(f)
	if err != nil {
		return err
	}
	return wait()
}

// enterCall does what do does, except that it returns a function that waits until the writes are
// durable.
func (s *Store) enterCall(f func(c *call) error) (wait func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil {
		return nil, s.state
	}
	c := s.begin()
	if err := f(c); err != nil {
		c.batch.Close()
		return nil, err
	}
	synced, err := c.commit()
	if err != nil {
		return nil, err
	}
	s.running.Add(1)
	return func() error {
		defer s.running.Done()
		return synced()
	}, nil
}

// writes are functions that wait until the writes of operations are durable.
type writes []func() error

func (w *writes) add(wait func() error, err error) error {
	if err == nil {
		*w = append(*w, wait)
	}
	return err
}

func (w writes) wait() error {
	var errs []error
	for _, wait := range w {
		errs = append(errs, wait())
	}
	return errors.Join(errs...)
}

// Admit implements bulk.Store.
func (s *Store) Admit(_ context.Context, grants []bulk.Grant) (admitted int, err error) {
	for left := slices.Clone(grants); len(left) > 0 && err == nil; {
		err = s.admitSome(&left, &admitted)
	}
	return admitted, err
}

// admitSome admits holdMost jobs, and takes what it has done from the grants.
func (s *Store) admitSome(grants *[]bulk.Grant, admitted *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	window := s.window(now)
	s.rest(window)
	s.findRates(window)
	for left := int64(holdMost); left > 0 && len(*grants) > 0; left-- {
		grant := &(*grants)[0]
		n := min(grant.Jobs, left, s.admissible(grant.Number, now, window))
		if n > 0 {
			s.admit(s.actions[grant.Number], n, cmp.Or(grant.Cost, 1))
			*admitted += int(n)
			grant.Jobs -= n
			left -= n
		}
		if n == 0 || grant.Jobs == 0 {
			*grants = (*grants)[1:]
		}
	}
	return s.state
}

// admissible returns how many jobs of an action may become ready now.
func (s *Store) admissible(number uint64, now time.Time, window int64) int64 {
	a := s.actions[number]
	if a == nil || !a.open() {
		return 0
	}
	switch k := a.line.jobType; {
	case k.ready.len() == 0:
		k.asked = window
	case k.idle:
		return 0
	}
	return min(a.waiting(), s.left(&s.global, now),
		s.leftOfTenant(a.line.tenant, now), s.leftOf(a.target, now), a.limiter.allowance(window))
}

// admit moves the first n jobs of an action's line into the ready queue.
func (s *Store) admit(a *action, n int64, cost float64) {
	for range n {
		var j *job
		if a.returned.len() > 0 {
			j = a.returned.pop()
		} else {
			j = s.newJob(a, uint32(a.next))
			a.next++
		}
		j.phase = ready
		a.line.jobType.ready.push(j)
	}
	a.record.Pending -= n
	a.record.Ready += n
	a.granted += n
	s.occupy(a, n)
	s.charge(a, n)
	s.advance(a.line, n, cost)
	s.changed(a)
}

// rest releases the slots that ready jobs of idle types hold: types that no worker asked
// for in this window and the one before. Otherwise these jobs would keep others from
// starting, window after window.
func (s *Store) rest(window int64) {
	for _, k := range s.types {
		switch idle := k.ready.len() > 0 && window > k.asked+1; {
		case idle && !k.idle:
			s.chargeAll(k, -1)
			k.idle = true
		case !idle:
			k.idle = false // Its earlier ready jobs, if it was idle, are gone.
		}
	}
}

// wake records that workers ask for jobs of a type: its ready jobs hold their slots.
func (s *Store) wake(name string, window int64) {
	k := s.types[name]
	if k == nil {
		return
	}
	k.asked = window
	if k.idle {
		k.idle = false
		s.chargeAll(k, 1)
	}
}

func (s *Store) chargeAll(k *jobType, n int64) {
	for _, j := range k.ready.items[k.ready.head:] {
		s.charge(j.action, n)
	}
}

// charge counts n more ready jobs of an action against its limits, unless its type is
// idle.
func (s *Store) charge(a *action, n int64) {
	if a.line.jobType.idle {
		return
	}
	if n < 0 {
		s.changed(a)
	}
	s.global.ready += n
	a.line.tenant.counter.ready += n
	a.limiter.ready += n
	a.target.ready += n
}

// advance charges n admitted jobs to the tags of a line and of its tenant.
func (s *Store) advance(l *line, n int64, cost float64) {
	weight := l.tenant.settings.Weight
	l.tenant.taken, s.virtual = bulk.Charge(l.tenant.taken, s.virtual, n, weight)
	l.taken, l.jobType.virtual = bulk.Charge(l.taken, l.jobType.virtual, n, weight/cost)
	l.granted += n
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
