package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// The phases of a job that is neither fresh nor done, and its flags, as in lua/action.lua.
const (
	stateInLine, stateAside, stateInFlight = 0, 1, 2
	stateLapsed, stateOwn                  = 1, 2
)

// crashLease is the maximum time that a job which was in flight in the process of the other
// store waits if no instance returns it.
const crashLease = time.Hour

// stageJobs stages payloads, the states of jobs, and the runs that wait in front.
func (t *staging) stageJobs(ctx context.Context) error {
	t.front.list = list{m: t.m, shard: t.shard, name: "b:" + t.name}
	t.bookings = map[int64]int64{}
	pages := int64(0)
	if t.a.Live {
		pages = (t.a.Received + bulk.ImagePage - 1) / bulk.ImagePage
	}
	next := int64(0)
	for jobs, err := range t.image.Jobs(t.a) {
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			continue
		}
		page := jobs[0].Index / bulk.ImagePage
		for ; t.a.Live && next < page; next++ {
			if err := t.stagePage(ctx, next, nil); err != nil {
				return err
			}
		}
		if err := t.stagePage(ctx, page, jobs); err != nil {
			return err
		}
		next = page + 1
	}
	for ; next < pages; next++ {
		if err := t.stagePage(ctx, next, nil); err != nil {
			return err
		}
	}
	a := t.a
	if t.succeeded != a.Succeeded || t.failed != a.Failed || t.inFlight != a.InFlight || t.aside != a.NonReady {
		return &bulk.ImageError{Action: a.ID, Why: fmt.Sprintf("%d of its jobs succeeded, %d failed, %d are in flight and %d are non-ready, but it counts %d, %d, %d and %d",
			t.succeeded, t.failed, t.inFlight, t.aside, a.Succeeded, a.Failed, a.InFlight, a.NonReady)}
	}
	return t.front.flush(ctx)
}

// stagePage stages the jobs of one page; omitted jobs are fresh.
func (t *staging) stagePage(ctx context.Context, page int64, jobs []bulk.JobImage) error {
	first := page * bulk.ImagePage
	count := min(bulk.ImagePage, t.a.Received-first)
	var finals []byte
	states := []string{"HSET", t.key("j")}
	done, inFlight := int64(0), false
	next := first
	for i := range jobs {
		j := &jobs[i]
		if err := t.fresh(ctx, next, j.Index); err != nil {
			return err
		}
		next = j.Index + 1
		if j.Phase >= bulk.PhaseSucceeded {
			done++
			finals = append(finals, make([]byte, j.Index-first+1-int64(len(finals)))...)
			finals[j.Index-first] = t.final(j)
			continue
		}
		inFlight = inFlight || j.Phase == bulk.PhaseInFlight
		states = append(states, number(j.Index), rueidis.BinaryString(t.state(j)))
		if j.Phase == bulk.PhaseWaits {
			if err := t.front.add(ctx, j.Index, 1, false); err != nil {
				return err
			}
		}
	}
	if err := t.fresh(ctx, next, first+count); err != nil {
		return err
	}
	var commands [][]string
	if len(finals) > 0 {
		commands = append(commands, []string{"SET", t.key("f") + ":" + number(page), rueidis.BinaryString(finals)})
	}
	if len(states) > 2 {
		t.states += int64(len(states)-2) / 2
		commands = append(commands, states)
	}
	// The last page of an open stream keeps its payloads: more follow.
	ended := done == count && (!t.a.Open || count == bulk.ImagePage)
	if t.a.Live && done > 0 && !ended {
		commands = append(commands, []string{"HSET", t.key("c"), number(page), number(done)})
	}
	if err := t.m.write(ctx, commands...); err != nil {
		return err
	}
	t.m.jobs.Add(count)
	// Payloads of jobs that are done, or canceled and not in flight, are not needed.
	if !t.a.Live || ended || t.a.Status == bulk.Canceled && !inFlight {
		return nil
	}
	return t.stagePayloads(ctx, page, first, count)
}

// fresh puts the fresh jobs of a range in front of the line, because later jobs were
// admitted.
func (t *staging) fresh(ctx context.Context, from, to int64) error {
	if to = min(to, t.a.Next); !t.a.Live || t.a.Status == bulk.Canceled || from >= to {
		return nil
	}
	return t.front.add(ctx, from, to-from, true)
}

func (t *staging) stagePayloads(ctx context.Context, page, first, count int64) error {
	l := list{m: t.m, shard: t.shard, name: "p:" + t.name + ":" + number(page)}
	for payloads, err := range t.image.Payloads(t.a, first, count) {
		if err != nil {
			return err
		}
		for _, p := range payloads {
			if err := l.add(ctx, rueidis.BinaryString(p)); err != nil {
				return err
			}
			t.bytes, t.largest = t.bytes+int64(len(p)), max(t.largest, int64(len(p)))
			t.m.bytes.Add(int64(len(p)))
		}
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	t.payloads += l.have
	return nil
}

// final returns the final of a job: see finalOf in lua/ended.lua.
func (t *staging) final(j *bulk.JobImage) byte {
	final := byte(max(1, min(j.Fence, 127)))
	switch j.Phase {
	case bulk.PhaseSucceeded:
		t.succeeded++
		final |= 128
	case bulk.PhaseFailed:
		t.failed++
	default:
		t.canceled++
	}
	return final
}

// state encodes a job as packState in lua/action.lua does: '>I4HBBBBHd'. A job that was in
// flight in the process of the other store belongs to this import: Enter returns it.
func (t *staging) state(j *bulk.JobImage) []byte {
	at := j.At
	var phase, flags byte
	owner := uint16(0)
	if j.Phase == bulk.PhaseInFlight {
		t.inFlight++
	}
	switch {
	case j.Phase == bulk.PhaseAside:
		phase = stateAside
		t.aside[j.Reason]++
		if j.Reason == bulk.APIThrottled {
			t.bookings[bulk.WindowIndex(j.At, t.m.s.config.Window)]++
		}
	case j.Phase == bulk.PhaseInFlight && j.Local:
		phase, flags, owner, at = stateInFlight, stateOwn, uint16(t.m.s.owner), time.Now().Add(crashLease)
	case j.Phase == bulk.PhaseInFlight:
		phase = stateInFlight
	default:
		phase = stateInLine
	}
	if j.Lapsed {
		flags |= stateLapsed
	}
	packed := binary.BigEndian.AppendUint32(make([]byte, 0, 20), j.Fence)
	packed = binary.BigEndian.AppendUint16(packed, uint16(j.Attempts))
	packed = append(packed, byte(j.Crashes), phase, byte(j.Reason), flags)
	packed = binary.BigEndian.AppendUint16(packed, owner)
	return appendFloat(packed, float64(millis(at)))
}

// front is the jobs that wait in front of an action's line: runs of consecutive jobs, as in
// lua/action.lua.
type front struct {
	list         list
	first, count int64
	fresh        bool
	jobs         int64
}

func (f *front) add(ctx context.Context, first, count int64, fresh bool) error {
	f.jobs += count
	if f.count > 0 && f.fresh == fresh && first == f.first+f.count {
		f.count += count
		return nil
	}
	if err := f.end(ctx); err != nil {
		return err
	}
	f.first, f.count, f.fresh = first, count, fresh
	return nil
}

func (f *front) end(ctx context.Context) error {
	if f.count == 0 {
		return nil
	}
	run := number(f.first) + " " + number(f.count)
	if f.fresh {
		run += " f"
	}
	f.count = 0
	return f.list.add(ctx, run)
}

func (f *front) flush(ctx context.Context) error {
	if err := f.end(ctx); err != nil {
		return err
	}
	return f.list.flush(ctx)
}

// stageOutcomes stages the outcomes that were not reduced.
func (t *staging) stageOutcomes(ctx context.Context) error {
	if !t.a.Live || len(t.a.Aggregate) == 0 {
		return nil
	}
	l := list{m: t.m, shard: t.shard, name: "o:" + t.name}
	for outcomes, err := range t.image.Outcomes(t.a) {
		if err != nil {
			return err
		}
		for i := range outcomes {
			if err := l.add(ctx, rueidis.BinaryString(encodeOutcome(&outcomes[i]))); err != nil {
				return err
			}
		}
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	if t.outcomes = l.have; t.outcomes > t.a.Succeeded+t.a.Failed {
		return &bulk.ImageError{Action: t.a.ID, Why: fmt.Sprintf("it has %d outcomes of %d jobs", t.outcomes, t.a.Succeeded+t.a.Failed)}
	}
	return nil
}

// encodeOutcome encodes an outcome for decodeOutcome.
func encodeOutcome(o *bulk.Outcome) []byte {
	packed := binary.BigEndian.AppendUint32(nil, uint32(o.Index))
	packed = append(packed, byte(flag(o.Succeeded)))
	packed = binary.BigEndian.AppendUint16(packed, uint16(o.Attempts))
	packed = appendFloat(packed, float64(o.Took.Microseconds()))
	packed = binary.BigEndian.AppendUint32(packed, uint32(len(o.Values)))
	return append(append(packed, o.Values...), o.Error...)
}

// stageDead stages the dead letters.
func (t *staging) stageDead(ctx context.Context) error {
	var letters, order []string
	bytes := 0
	flush := func() error {
		if len(letters) == 0 {
			return nil
		}
		err := t.m.write(ctx, append([]string{"HSET", t.key("d")}, letters...), append([]string{"ZADD", t.key("dz")}, order...))
		letters, order, bytes = letters[:0], order[:0], 0
		return err
	}
	for page, err := range t.image.DeadLetters(t.a) {
		if err != nil {
			return err
		}
		for i := range page {
			text, index := encodeDead(&page[i]), strconv.FormatInt(page[i].Index, 10)
			letters, order = append(letters, index, string(text)), append(order, index, index)
			if bytes += len(text); len(letters) >= importValues || bytes >= importBytes {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// stageResults stages the kept results.
func (t *staging) stageResults(ctx context.Context) error {
	hash := []string{"HSET", t.key("w")}
	fields, bytes := hash, 0
	flush := func() error {
		if len(fields) == len(hash) {
			return nil
		}
		err := t.m.write(ctx, fields)
		fields, bytes = fields[:len(hash)], 0
		return err
	}
	for r, err := range t.image.Results(t.a) {
		if err != nil {
			return err
		}
		t.results++
		fields = append(fields, number(r.Index), strconv.Itoa(flag(r.Truncated))+string(r.Result))
		if bytes += len(r.Result); len(fields) >= importValues || bytes >= importBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// encodeDead encodes a dead letter for decodeDead.
func encodeDead(d *bulk.DeadLetter) []byte {
	packed := binary.BigEndian.AppendUint16(nil, uint16(d.Attempts))
	packed = appendFloat(packed, float64(millis(d.FailedAt)))
	packed = binary.BigEndian.AppendUint32(packed, uint32(len(d.Error)))
	return append(append(packed, d.Error...), d.Payload...)
}
