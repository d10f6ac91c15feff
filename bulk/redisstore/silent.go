package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// A silent shard is asked again after askAfter, and then with a doubled delay up to askAtMost.
const (
	askAfter  = 100 * time.Millisecond
	askAtMost = 3 * time.Second
)

// errSilent is the error of a call to a shard that is known to be silent.
var errSilent = fmt.Errorf("%w: a shard does not answer", bulk.ErrUnavailable)

// silences has the shards whose last look failed. Calls to them fail at once, so that they do not
// delay what is done for the others, until a question in the background is answered. When all
// shards are silent there are no others: then every call is made.
type silences struct {
	mu     sync.Mutex
	of     map[int]*silence
	silent int // the number of silent shards
	// ctx is that of the questions, and ends with the store.
	ctx    context.Context
	end    context.CancelFunc
	asking sync.WaitGroup
}

// silence is that of one shard, or its last one until a look succeeds.
type silence struct {
	since  time.Time
	over   bool // it has answered the question; no look has succeeded yet
	asked  bool // the question is under way
	failed int
	next   time.Time // when to ask again
}

func newSilences() silences {
	ctx, end := context.WithCancel(context.Background())
	return silences{of: map[int]*silence{}, ctx: ctx, end: end}
}

// silent reports whether a shard is silent and others are not. If it is time, it asks the shard
// again, in the background.
func (s *Store) silent(shard int) bool {
	all := &s.silences
	all.mu.Lock()
	defer all.mu.Unlock()
	of := all.of[shard]
	if of == nil || of.over || all.silent == len(s.shards) {
		return false
	}
	if now := time.Now(); !of.asked && !now.Before(of.next) && all.ctx.Err() == nil {
		of.asked = true
		all.asking.Go(func() { s.askAgain(shard, of) })
	}
	return true
}

// askAgain asks a silent shard for changes after a number that it has not reached.
func (s *Store) askAgain(shard int, of *silence) {
	_, err := onAnyShard(s.silences.ctx, s, lookScript, shard, readLook, number(maxQuota), "1")
	s.silences.mu.Lock()
	defer s.silences.mu.Unlock()
	of.asked = false
	switch {
	case of.over: // a look was faster
	case err == nil:
		s.endSilence(shard, of)
	default:
		of.wait()
	}
}

// wait sets when to ask again. silences.mu must be held.
func (of *silence) wait() {
	of.failed++
	of.next = time.Now().Add(bulk.RetryDelay(askAfter, askAtMost, of.failed, rand.Float64()))
}

// endSilence ends a silence. silences.mu must be held.
func (s *Store) endSilence(shard int, of *silence) {
	of.over = true
	s.silences.silent--
	s.logger.Info("a shard answers again: its jobs run again", "shard", shard, "silent_for", time.Since(of.since).Round(time.Millisecond))
}

// looked records how a look at a shard ended.
func (s *Store) looked(shard int, err error) {
	all := &s.silences
	all.mu.Lock()
	defer all.mu.Unlock()
	of := all.of[shard]
	if err == nil {
		if of != nil && !of.over {
			s.endSilence(shard, of)
		}
		delete(all.of, shard)
		return
	}
	if of == nil {
		of = &silence{over: true}
		all.of[shard] = of
	}
	if of.over {
		of.since, of.over = time.Now(), false
		all.silent++
		s.logger.Error("a shard does not answer: its jobs wait, those of other shards run", "shard", shard, "error", err)
	}
	of.wait()
}

// othersGoOn drops the error of a call that failed only at shards that are known to be silent.
func othersGoOn(err error) error {
	if errors.Is(err, errSilent) {
		return nil
	}
	return err
}
