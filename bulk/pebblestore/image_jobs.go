package pebblestore

import (
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// Actions implements bulk.Image. It counts the jobs of live actions, as opening the store
// does.
func (i *Image) Actions() iter.Seq2[bulk.ActionImage, error] {
	return stream(i.store.db, []byte{keyAction}, []byte{keyAction + 1}, func(key, value []byte) (a bulk.ActionImage, err error) {
		if err := pebblekv.Unmarshal(key, value, &a.Action); err != nil {
			return a, err
		}
		a.Number = binary.BigEndian.Uint64(key[1:])
		live, err := pebblekv.Get(i.store.db, numberKey(keyLive, a.Number))
		if err != nil {
			return a, err
		}
		from, to := numberRange(keyDead, a.Number)
		err = pebblekv.Scan(i.store.db, from, to, func([]byte, []byte) (bool, error) {
			a.Dead++
			return true, nil
		})
		if err != nil || live == nil {
			return a, err
		}
		a.Live = true
		return a, i.count(&a)
	})
}

// count counts the jobs of a live action.
func (i *Image) count(a *bulk.ActionImage) (err error) {
	received := a.Received
	switch {
	case a.Takes():
		if received, err = i.store.received(a.Number); err != nil {
			return err
		}
	case a.Status == bulk.Canceled:
	default:
		received = a.Total
	}
	a.Counts = bulk.Counts{Received: received}
	outcomes, err := pebblekv.NewAscent(i.store.db, []byte{keyOutcomes}, []byte{keyOutcomes + 1})
	if err != nil {
		return err
	}
	a.Batches, err = batchesOf(outcomes, a.Number)
	if err = errors.Join(err, outcomes.Close()); err != nil {
		return err
	}
	done := int64(0)
	for jobs, err := range i.jobs(a, func(p *pageFacts) {
		a.Throttled, a.Retried = a.Throttled+int64(p.throttled), a.Retried+int64(p.retried)
	}) {
		if err != nil {
			return err
		}
		for _, j := range jobs {
			a.Next = max(a.Next, j.Index+1)
			switch j.Phase {
			case bulk.PhaseInFlight:
				a.InFlight++
			case bulk.PhaseAside:
				a.NonReady[j.Reason]++
			case bulk.PhaseSucceeded:
				a.Succeeded++
			case bulk.PhaseFailed:
				a.Failed++
			case bulk.PhaseCanceled:
				done++
			case bulk.PhaseWaits:
			}
		}
	}
	left := received - a.Succeeded - a.Failed - a.InFlight
	if a.Status == bulk.Canceled {
		a.Canceled, a.Next = left, received
	} else {
		a.Pending = left - a.NonReadyTotal() - done
	}
	return nil
}

// Jobs implements bulk.Image.
func (i *Image) Jobs(a *bulk.ActionImage) iter.Seq2[[]bulk.JobImage, error] {
	return i.jobs(a, func(*pageFacts) {})
}

// jobs replays the logs of an action, and yields the jobs of each page.
func (i *Image) jobs(a *bulk.ActionImage, show func(*pageFacts)) iter.Seq2[[]bulk.JobImage, error] {
	facts, jobs := new(pageFacts), make([]bulk.JobImage, 0, pageSize)
	from, to := numberRange(keyLog, a.Number)
	return stream(i.store.db, from, to, func(key, log []byte) ([]bulk.JobImage, error) {
		*facts, jobs = pageFacts{}, jobs[:0]
		if err := facts.replay(log); err != nil {
			return nil, pebblekv.Corrupt(key, err.Error())
		}
		show(facts)
		base := int64(binary.BigEndian.Uint32(key[9:])) << pageBits
		for at := range facts.jobs {
			if j, touched := facts.jobs[at].image(base + int64(at)); touched && i.has(a, &j) {
				jobs = append(jobs, j)
			}
		}
		return jobs, nil
	})
}

// has reports whether a job stands for itself: what ended with its action does not.
func (i *Image) has(a *bulk.ActionImage, j *bulk.JobImage) bool {
	switch {
	case j.Phase >= bulk.PhaseSucceeded:
		return true
	case !a.Live:
		return false
	}
	return a.Status != bulk.Canceled || j.Phase == bulk.PhaseInFlight && !j.Local
}

// image returns a job from its facts; touched is false if it was never admitted.
func (f *jobFacts) image(index int64) (j bulk.JobImage, touched bool) {
	j = bulk.JobImage{
		Index: index, Fence: f.fence, Attempts: int(f.attempts), Crashes: int(f.crashes), Lapsed: f.lapsed,
	}
	switch f.phase {
	case untouched:
		return j, false
	case inFlight:
		j.Phase, j.Local, j.Lapsed = bulk.PhaseInFlight, f.local, false
		if !f.local {
			j.At = time.UnixMilli(f.at)
		}
	case nonReady:
		j.Phase, j.Reason, j.At = bulk.PhaseAside, bulk.NonReadyReason(f.reason), time.UnixMilli(f.at)
	case succeeded:
		j.Phase = bulk.PhaseSucceeded
	case failed:
		j.Phase = bulk.PhaseFailed
	case canceled:
		j.Phase = bulk.PhaseCanceled
	default:
		j.Phase = bulk.PhaseWaits
	}
	return j, true
}
