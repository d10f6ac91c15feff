package pebblestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// MaxJobs bounds the jobs of one action.
const MaxJobs = math.MaxUint32 - 1

// Create implements bulk.Store.
func (s *Store) Create(_ context.Context, spec bulk.Spec) (created bulk.Action, isNew bool, err error) {
	spec.ID = cmp.Or(spec.ID, "act_"+strings.ToLower(rand.Text()))
	if err := s.disk.Check(s.now(), 1024); err != nil {
		return created, false, err
	}
	err = s.do(func(c *call) error {
		number, err := s.lookup(spec.ID)
		if err == nil {
			created, err = s.present(number)
			if err == nil && !created.Spec.Equal(spec) {
				err = &bulk.ExistsError{ID: spec.ID}
			}
			return err
		}
		if !errors.Is(err, bulk.ErrNotFound) {
			return err
		}
		if err := cmp.Or(s.outbox.full(), s.storable(spec.Tenant, bulk.Stored{Actions: 1})); err != nil {
			return err
		}
		isNew = true
		s.number++
		created = spec.Action(c.now.UTC())
		encoded := binary.BigEndian.AppendUint64(nil, s.number)
		c.keep(c.batch.Set(metaNumber, encoded, nil))
		c.keep(c.batch.Set(append([]byte{keyID}, spec.ID...), encoded, nil))
		c.keep(c.batch.Set(numberKey(keyLive, s.number), nil, nil))
		c.write(s.number, &created)
		c.announce(bulk.ActionCreated, &created)
		s.enter(s.number, created, 0)
		return nil
	})
	return created, isNew, err
}

// write stores an action's record.
func (c *call) write(number uint64, record *bulk.Action) {
	encoded, err := json.Marshal(record)
	c.keep(err)
	c.keep(c.batch.Set(numberKey(keyAction, number), encoded, nil))
}

// present returns an action by number, finished or not.
func (s *Store) present(number uint64) (bulk.Action, error) {
	if a := s.actions[number]; a != nil {
		return a.record, nil
	}
	return s.record(number)
}

// Append implements bulk.Store.
func (s *Store) Append(_ context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	done, err := s.hold()
	if err != nil {
		return 0, err
	}
	defer done()
	s.mu.Lock()
	a := s.find(id)
	s.mu.Unlock()
	if a == nil {
		return 0, s.refuseAppend(id)
	}
	a.upload.Lock()
	defer a.upload.Unlock()
	s.mu.Lock()
	received, status, takes := a.record.Received, a.record.Status, a.record.Takes()
	full := s.outbox.full()
	s.mu.Unlock()
	switch {
	case !takes:
		return received, sealedError(id, status, received)
	case offset == bulk.AtEnd:
		offset = received
	case offset < 0 || offset > received:
		return received, &bulk.OffsetError{Received: received}
	}
	payloads = payloads[min(received-offset, int64(len(payloads))):]
	if len(payloads) == 0 {
		return received, nil
	}
	if received+int64(len(payloads)) > MaxJobs {
		return received, fmt.Errorf("%w: an action has at most %d jobs", bulk.ErrFull, int64(MaxJobs))
	}
	if full != nil && a.jobEvents {
		return received, full
	}
	more := bulk.Stored{Jobs: int64(len(payloads))}
	for _, p := range payloads {
		more.Bytes += int64(len(p))
	}
	if err := s.reserve(a, more); err != nil {
		return received, err
	}
	if err := s.appendPages(a.number, received, a.bytes+more.Bytes, payloads); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.line.tenant.stored = a.line.tenant.stored.Less(more)
		return received, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	received += more.Jobs
	a.record.Received, a.bytes = received, a.bytes+more.Bytes
	a.record.Pending = a.waiting()
	s.changed(a)
	return received, s.state
}

// storable returns a *bulk.QuotaError if a tenant may not have so much more stored. s.mu must be held.
func (s *Store) storable(name string, more bulk.Stored) error {
	var of tenant // one without actions and settings
	if t := s.tenants[name]; t != nil {
		of.settings, of.stored = t.settings, t.stored
	}
	return s.config.QuotaOf(&of.settings).Refuse(name, of.stored, more)
}

// StoredOf implements bulk.Store. Appends that are under way are counted.
func (s *Store) StoredOf(_ context.Context, tenants []string) (map[string]bulk.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]bulk.Stored, len(tenants))
	for _, name := range tenants {
		var stored bulk.Stored
		if t := s.tenants[name]; t != nil {
			stored = t.stored
		}
		counts[name] = stored
	}
	return counts, s.state
}

// reserve counts jobs that are about to be appended, unless they exceed the tenant's quota.
func (s *Store) reserve(a *action, more bulk.Stored) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := a.line.tenant
	if err := s.storable(t.name, more); err != nil {
		return err
	}
	t.stored = t.stored.Add(more)
	return nil
}

// appendPages stores payloads after the first `received` ones of an action, which has so many bytes of
// payloads then. It holds only the action's lock, so that uploads run concurrently.
func (s *Store) appendPages(number uint64, received, whole int64, payloads [][]byte) error {
	batch := s.db.NewBatch()
	_ = batch.Set(numberKey(keyLive, number), binary.AppendUvarint(nil, uint64(whole)), nil)
	index, bytes := uint32(received), 0
	splitPages(payloads, func(payloads [][]byte, size int) {
		bytes += size
		// Set fails only on a batch that was applied.
		_ = batch.Set(indexKey(keyPayloads, number, index), encodePage(payloads, size), nil)
		index += uint32(len(payloads))
	})
	if err := s.disk.Check(s.now(), bytes); err != nil {
		return errors.Join(err, batch.Close())
	}
	err := pebblekv.Apply(s.db, batch)
	if err == nil {
		err = batch.SyncWait()
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.broke(err)
	}
	return batch.Close()
}

func sealedError(id string, status bulk.Status, received int64) error {
	return &bulk.TransitionError{ID: id, From: status, Received: received, Why: "jobs can be added only before it is sealed"}
}

// refuseAppend returns why jobs cannot be added to an action that is not in memory.
func (s *Store) refuseAppend(id string) error {
	action, err := s.Action(context.Background(), id)
	if err != nil {
		return err
	}
	return sealedError(id, action.Status, action.Received)
}

// Action implements bulk.Store.
func (s *Store) Action(_ context.Context, id string) (bulk.Action, error) {
	s.reads.RLock()
	defer s.reads.RUnlock()
	if s.state != nil {
		return bulk.Action{}, s.state
	}
	number, err := s.lookup(id)
	if err != nil {
		return bulk.Action{}, err
	}
	return s.present(number)
}

// tell records that an action has changed, for Changes.
func (s *Store) tell(a *action) {
	if !a.untold {
		a.untold = true
		s.untold = append(s.untold, a)
	}
}

// Changes implements bulk.Store.
func (s *Store) Changes(ctx context.Context, most int) (c bulk.Changes, err error) {
	if err := ctx.Err(); err != nil { // the first calls of all may take seconds
		return c, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Ended, s.ended = s.ended, nil
	n := min(most, holdMost, len(s.untold))
	c.Actions = make([]bulk.Unfinished, 0, n)
	for _, a := range s.untold[:n] {
		a.untold = false
		if s.actions[a.number] == a {
			c.Actions = append(c.Actions, a.record.Unfinished(a.spec))
		}
	}
	clear(s.untold[:n])
	if s.untold = s.untold[n:]; len(s.untold) == 0 {
		s.untold = nil
	}
	c.More = len(s.untold) > 0
	return c, s.state
}

// Transition implements bulk.Store.
func (s *Store) Transition(_ context.Context, id string, transition bulk.Transition) (moved bulk.Action, err error) {
	if transition.Kind == bulk.Seal || transition.Kind == bulk.Cancel {
		s.reads.RLock()
		a := s.find(id)
		s.reads.RUnlock()
		if a != nil {
			a.upload.Lock()
			defer a.upload.Unlock()
		}
	}
	err = s.do(func(c *call) error {
		number, err := s.lookup(id)
		if err != nil {
			return err
		}
		if moved, err = s.present(number); err != nil {
			return err
		}
		next, err := moved.Apply(transition, c.now.UTC())
		if err != nil {
			return err
		}
		if transition.Kind == bulk.Resume {
			if err := s.outbox.full(); err != nil {
				return err
			}
		}
		before := moved
		moved = c.transition(number, next, transition)
		c.announce(transition.EventType(&before, &moved), &moved)
		return nil
	})
	return moved, err
}

// transition applies a transition that the status machine has decided, in memory and on disk.
func (c *call) transition(number uint64, next bulk.Action, transition bulk.Transition) bulk.Action {
	s, a := c.s, c.s.actions[number]
	switch transition.Kind {
	case bulk.Replayed:
		c.deleteDead(number, transition.Total)
	case bulk.DropLetters:
		for _, index := range transition.Letters {
			c.keep(c.batch.Delete(indexKey(keyDead, number, uint32(min(index, MaxJobs))), nil))
		}
	case bulk.Forget:
		if a != nil { // canceled, with jobs in flight
			s.landAll(a)
			c.retire(a)
		}
		c.forget(number, next.ID)
		return next
	}
	if a == nil {
		c.write(number, &next)
		return next
	}
	a.record = next
	s.changed(a)
	s.tell(a)
	switch transition.Kind {
	case bulk.Pause:
		s.withdraw(a)
	case bulk.Cancel:
		s.cancelAll(a)
	}
	c.write(number, &a.record)
	if next.Status.Final() && !next.FinishedAt.IsZero() {
		c.retire(a)
	}
	return a.record
}

// withdraw takes an action's ready jobs back into its line.
func (s *Store) withdraw(a *action) {
	jobs := s.unready(a)
	for _, j := range jobs {
		j.phase = inLine
	}
	a.returned.prepend(jobs)
	a.record.Pending += int64(len(jobs))
}

// unready takes an action's jobs out of the ready queue, in order.
func (s *Store) unready(a *action) []*job {
	if a.record.Ready == 0 {
		return nil
	}
	jobs := a.line.jobType.ready.remove(func(j *job) bool { return j.action == a })
	s.charge(a, -int64(len(jobs)))
	a.record.Ready -= int64(len(jobs))
	s.occupy(a, -int64(len(jobs)))
	return jobs
}

// cancelAll cancels the jobs of an action that are not in flight.
func (s *Store) cancelAll(a *action) {
	s.unready(a)
	for _, j := range a.jobs {
		switch j.phase {
		case inFlight:
			continue
		case nonReady:
			s.takeUp(j)
		}
		delete(a.jobs, j.index)
	}
	a.returned, a.next = queue{}, a.record.Received
	a.record.Pending = 0
	a.record.Canceled = a.record.Received - a.record.Succeeded - a.record.Failed - a.record.InFlight
}

// landAll takes an action's jobs out of flight.
func (s *Store) landAll(a *action) {
	for _, j := range a.jobs {
		if j.phase == inFlight {
			s.land(j)
			s.drop(j)
		}
	}
}

// retire removes a finished action from memory. Its record, its log (for late
// settlements) and its dead letters stay until it is deleted.
func (c *call) retire(a *action) {
	onePage := c.s.pages.whole(a.number, a.record.Received)
	c.s.leave(a)
	c.s.late.keep(a.number, a.finals)
	c.keep(c.batch.Delete(numberKey(keyLive, a.number), nil))
	if onePage {
		c.keep(c.batch.Delete(indexKey(keyPayloads, a.number, 0), nil))
	} else {
		c.deleteAll(keyPayloads, a.number)
	}
	if a.record.Batches > pointDeletes {
		c.deleteAll(keyOutcomes, a.number)
		return
	}
	for batch := range a.record.Batches {
		c.keep(c.batch.Delete(outcomesKey(a.number, batch), nil))
	}
}

// forget deletes a finished action.
func (c *call) forget(number uint64, id string) {
	c.keep(c.batch.Delete(numberKey(keyAction, number), nil))
	c.keep(c.batch.Delete(append([]byte{keyID}, id...), nil))
	c.deleteAll(keyLog, number)
	c.deleteAll(keyDead, number)
	c.deleteAll(keyResult, number)
	c.s.late.forget(number)
}

// pointDeletes is up to how many keys of an action are deleted one by one. Range
// deletions make reads slower until Pebble has flushed them, which matters with ten
// thousand small actions.
const pointDeletes = 64

func (c *call) deleteAll(kind byte, number uint64) {
	from, to := numberRange(kind, number)
	keys := 0
	c.keep(pebblekv.Scan(c.s.db, from, to, func(key, _ []byte) (bool, error) {
		keys++
		return keys <= pointDeletes, c.batch.Delete(key, nil)
	}))
	if keys > pointDeletes {
		c.keep(c.batch.DeleteRange(from, to, nil))
	}
}

// deleteDead deletes the dead letters below an index.
func (c *call) deleteDead(number uint64, below int64) {
	from, _ := numberRange(keyDead, number)
	c.keep(c.batch.DeleteRange(from, indexKey(keyDead, number, uint32(min(below, MaxJobs))), &pebble.WriteOptions{}))
}
