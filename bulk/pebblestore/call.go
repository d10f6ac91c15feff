package pebblestore

import (
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// compactLog is the length from which on a page's log is replaced by a snapshot.
const compactLog = 32 << 10

// call is one atomic operation in progress, with s.mu held.
type call struct {
	s       *Store
	serial  uint64
	now     time.Time
	window  int64
	batch   *pebble.Batch
	touched []*action
	events  uint64 // the highest number of the events that it has put into the outbox; 0: none
	err     error
}

func (s *Store) begin() *call {
	now := s.now()
	s.calls++
	window := s.window(now)
	s.findRates(window)
	return &call{s: s, serial: s.calls, now: now, window: window, batch: s.db.NewBatch()}
}

// note appends an event of a job to its page's log.
func (c *call) note(a *action, kind event, index uint32, argument int64) {
	c.touch(a)
	if page := index >> pageBits; page != a.writer.page {
		c.writeLog(a)
		a.writer.page = page
	}
	a.writer.add(kind, index, argument)
}

func (c *call) touch(a *action) {
	if !a.touched {
		a.touched = true
		c.touched = append(c.touched, a)
	}
}

// writeLog writes the noted events to the log of their page. It replaces a long log by a
// snapshot, unless this call has appended to it: its batch cannot be read back.
func (c *call) writeLog(a *action) {
	a.writer.flush()
	log, page := a.writer.log, a.writer.page
	if len(log) == 0 {
		return
	}
	a.writer.log = a.writer.log[:0]
	key := indexKey(keyLog, a.number, page)
	length := a.logs[page].bytes + len(log)
	if length < compactLog || a.logs[page].call == c.serial {
		a.logs[page] = pageLog{length, c.serial}
		c.keep(c.batch.Merge(key, log, nil))
		return
	}
	old, err := pebblekv.Get(c.s.db, key)
	c.keep(err)
	var facts pageFacts
	for _, log := range [][]byte{old, log} {
		if err := facts.replay(log); err != nil {
			c.keep(pebblekv.Corrupt(key, err.Error()))
		}
	}
	snapshot := facts.snapshot()
	a.logs[page] = pageLog{len(snapshot), c.serial}
	c.keep(c.batch.Set(key, snapshot, nil))
}

// keep keeps the first error.
func (c *call) keep(err error) {
	if c.err == nil {
		c.err = err
	}
}

// commit writes the touched actions and enters the batch into the log, so that the log
// has the order of memory. It returns a function that waits for the fsync, to be called
// without s.mu. After an error, memory and disk differ.
func (c *call) commit() (wait func() error, err error) {
	for _, a := range c.touched {
		c.writeLog(a)
		c.writeOutcomes(a)
		c.writeEnded(a)
		a.touched = false
		c.s.tell(a)
	}
	if c.err != nil {
		c.batch.Close()
		return nil, c.s.broke(c.err)
	}
	if c.batch.Empty() {
		return c.batch.Close, nil
	}
	if err := pebblekv.Apply(c.s.db, c.batch); err != nil {
		return nil, c.s.broke(err)
	}
	return func() error {
		if err := c.batch.SyncWait(); err != nil {
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			return c.s.broke(err)
		}
		if c.events > 0 {
			c.s.outbox.reached(c.events)
		}
		return c.batch.Close()
	}, nil
}

func (c *call) writeOutcomes(a *action) {
	if len(a.outcomes) == 0 {
		return
	}
	c.keep(c.batch.Set(outcomesKey(a.number, a.record.Batches), encodeOutcomes(a.outcomes), nil))
	a.record.Batches++
	clear(a.outcomes)
	a.outcomes = a.outcomes[:0]
}

// launch puts a job in flight.
func (s *Store) launch(j *job) {
	a := j.action
	j.phase, j.lapsed = inFlight, false
	s.leases.Set(j)
	a.line.jobType.launched(s.now())
	s.fly(a, 1)
}

// land takes a job out of flight.
func (s *Store) land(j *job) {
	a := j.action
	s.leases.Remove(j)
	a.line.jobType.landed(s.now())
	s.fly(a, -1)
}

// fly counts n more jobs of an action in flight.
func (s *Store) fly(a *action, n int64) {
	a.record.InFlight += n
	s.occupy(a, n)
	s.global.inFlight += n
	a.line.tenant.counter.inFlight += n
	a.target.inFlight += n
}

// goBack returns a job that has left flight, or was non-ready, to its line.
func (s *Store) goBack(j *job) {
	j.phase = inLine
	j.action.returned.push(j)
	j.action.record.Pending++
	s.changed(j.action)
}

// setAside makes a job non-ready until j.at.
func (s *Store) setAside(j *job) {
	a := j.action
	j.phase = nonReady
	s.due.Set(j)
	a.record.NonReady[j.reason]++
	s.nonReady[j.reason]++
	if j.reason == reasonThrottled {
		a.limiter.book(s.window(j.at), 1)
	}
}

// takeUp takes a job out of the non-ready queue.
func (s *Store) takeUp(j *job) {
	a := j.action
	s.due.Remove(j)
	a.record.NonReady[j.reason]--
	s.nonReady[j.reason]--
	if j.reason == reasonThrottled {
		a.limiter.book(s.window(j.at), -1)
	}
}

// drop removes a job from memory.
func (s *Store) drop(j *job) {
	delete(j.action.jobs, j.index)
	*j = job{}
	if len(s.free) < 4096 {
		s.free = append(s.free, j)
	}
}

// newJob returns a job that is admitted for the first time.
func (s *Store) newJob(a *action, index uint32) *job {
	var j *job
	if n := len(s.free); n > 0 {
		j, s.free = s.free[n-1], s.free[:n-1]
	} else {
		j = new(job)
	}
	j.action, j.index = a, index
	a.jobs[index] = j
	return j
}

// succeed ends a job that has landed.
func (c *call) succeed(j *job, settlement *bulk.Settlement) {
	a := j.action
	c.note(a, evSucceeded, j.index, 0)
	c.outcome(a, bulk.Outcome{
		Index: int64(j.index), Succeeded: true, Attempts: int(j.attempts), Took: settlement.Took,
		Values: settlement.Values, Error: cutError(settlement.Error),
	})
	if c.tells(a) {
		c.ended(a, bulk.JobResult{
			Index: int64(j.index), Succeeded: true, Attempts: int(j.attempts),
			Result: settlement.Result, ResultTruncated: settlement.ResultTruncated, Error: cutError(settlement.Error),
		})
	}
	if a.spec.KeepResults {
		c.keep(c.batch.Set(indexKey(keyResult, a.number, j.index), encodeResult(settlement.Result, settlement.ResultTruncated), nil))
	}
	a.record.Succeeded++
	a.setFinal(j.index, j.fence, true)
	c.s.drop(j)
}

func cutError(why string) string { return why[:min(len(why), bulk.MaxErrorBytes)] }

// fail ends a job that has landed, as a dead letter.
func (c *call) fail(j *job, why string, took time.Duration) {
	a := j.action
	why = cutError(why)
	payload, err := c.s.pages.payload(a.number, j.index)
	c.keep(err)
	c.note(a, evFailed, j.index, 0)
	c.keep(c.batch.Set(indexKey(keyDead, a.number, j.index), encodeDeadLetter(bulk.DeadLetter{
		Payload: payload, Error: why, Attempts: int(j.attempts), FailedAt: c.now,
	}), nil))
	c.outcome(a, bulk.Outcome{Index: int64(j.index), Attempts: int(j.attempts), Took: took, Error: why})
	if c.tells(a) {
		c.ended(a, bulk.JobResult{Index: int64(j.index), Attempts: int(j.attempts), Error: why})
	}
	a.record.Failed++
	a.setFinal(j.index, j.fence, false)
	c.s.drop(j)
}

// cancel ends a job that landed after its action was canceled.
func (c *call) cancel(j *job) {
	a := j.action
	c.note(a, evCanceled, j.index, 0)
	a.record.Canceled++
	a.setFinal(j.index, j.fence, false)
	c.s.drop(j)
}

// outcome records an outcome for the aggregator, if the action has one.
func (c *call) outcome(a *action, o bulk.Outcome) {
	if len(a.spec.Aggregate) > 0 {
		c.touch(a)
		a.outcomes = append(a.outcomes, o)
	}
}

// started records when the window of the last attempt ends, so that limits do not start
// from zero in a store that is opened before.
func (c *call) started() {
	ends := bulk.WindowStart(c.window+1, c.s.config.Window).UnixNano()
	c.keep(c.batch.Set(metaWindow, binary.BigEndian.AppendUint64(nil, uint64(ends)), nil))
	c.writeAuto()
}
