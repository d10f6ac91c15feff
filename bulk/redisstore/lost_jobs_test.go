//go:build redis

package redisstore

import (
	"time"

	"github.com/sluice-project/sluice/bulk"
)

func lostAdmit(l *losses) {
	l.of(func(id string) { start(l.t, l.store, webhooks(id), 20) }, func(string) error {
		_, err := admit(l.t.Context(), l.store, 5)
		return err
	}, func(id string, twice bool) {
		a := action(l.t, l.store, id)
		if a.Ready != 5 && (!twice || a.Ready != 10) {
			l.t.Errorf("%d of %s are ready, want 5 for each time that they were admitted", a.Ready, id)
		}
		l.drain()
	})
}

// lostLease checks that jobs whose lease's answer was lost return when the lease has expired,
// and have used an attempt.
func lostLease(l *losses) {
	l.of(func(id string) {
		start(l.t, l.store, webhooks(id), 10)
		if _, err := admit(l.t.Context(), l.store, 10); err != nil {
			l.t.Fatal(err)
		}
	}, func(string) error {
		_, err := l.store.Lease(l.t.Context(), request(4))
		return err
	}, func(id string, twice bool) {
		a := action(l.t, l.store, id)
		if a.InFlight != 4 && (!twice || a.InFlight != 8) {
			l.t.Errorf("%d of %s are in flight, want 4 for each time that they were leased", a.InFlight, id)
		}
		l.clock.advance(31 * time.Second)
		if moved, _, err := l.store.Dispatch(l.t.Context(), 100); err != nil || int64(moved) != a.InFlight {
			l.t.Errorf("%d have come back, %v; want %d", moved, err, a.InFlight)
		}
		again, err := l.store.Lease(l.t.Context(), request(10)) // the jobs that were ready
		if err != nil {
			l.t.Fatal(err)
		}
		again = append(take(l.t, l.store, 10-len(again)), again...)
		for i, j := range again {
			want := 1
			if j.Index < a.InFlight {
				want = 2
			}
			if j.Attempt != want {
				l.t.Errorf("job %d is job %d in attempt %d, want %d", i, j.Index, j.Attempt, want)
			}
		}
		l.settle(bulk.Succeeded, again)
		l.drain2(id)
	})
}

// lostSettle checks that a job settled by a call whose answer was lost is a duplicate in the
// repeated call, and counted once.
func lostSettle(l *losses) {
	var held []bulk.Settlement
	const took = time.Second
	calls := 0
	l.of(func(id string) {
		start(l.t, l.store, webhooks(id), 7)
		jobs := take(l.t, l.store, 7)
		held, calls = nil, 0
		for i, kind := range []bulk.SettlementKind{
			bulk.Succeeded, bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.Throttled, bulk.Released, bulk.Extended,
		} {
			held = append(held, bulk.Settlement{Lease: jobs[i].Lease, Kind: kind, Took: took, LeaseFor: time.Minute, Error: "why", Values: []byte("[1]")})
		}
	}, func(string) error {
		verdicts, err := l.store.Settle(l.t.Context(), held)
		calls++
		for i, v := range verdicts {
			extended := held[i].Kind == bulk.Extended
			if v != bulk.Accepted && (v != bulk.Duplicate || calls == 1 || extended) {
				l.t.Errorf("call %d, settlement %d: %s", calls, i, v)
			}
		}
		return err
	}, func(id string, _ bool) {
		a := action(l.t, l.store, id)
		c := a.Counts
		if c.Succeeded != 2 || c.Failed != 1 || c.NonReadyTotal() != 2 || c.Pending != 1 || c.InFlight != 1 || c.Throttled != 1 || c.Retried != 1 {
			l.t.Errorf("counts of %s are %+v", id, c)
		}
		outcomes, upTo, err := l.store.Outcomes(l.t.Context(), id, 0)
		if err != nil || len(outcomes) != 3 || upTo != 3 {
			l.t.Errorf("%d outcomes up to %d, %v", len(outcomes), upTo, err)
		}
		if letters, err := l.store.DeadLetters(l.t.Context(), id, 0, 10); err != nil || len(letters) != 1 {
			l.t.Errorf("%d dead letters, %v", len(letters), err)
		}
		l.drain()
	})
}

func lostDispatch(l *losses) {
	l.of(func(id string) {
		start(l.t, l.store, webhooks(id), 6)
		jobs := take(l.t, l.store, 6)
		l.settle(bulk.Throttled, jobs[:2])
		l.settle(bulk.FailedForNow, jobs[2:4])
		l.clock.advance(2 * time.Minute) // the other leases have expired
	}, func(string) error {
		_, _, err := l.store.Dispatch(l.t.Context(), 100)
		return err
	}, func(id string, _ bool) {
		if a := action(l.t, l.store, id); a.Pending != 6 || a.Retried != 4 || a.Throttled != 2 {
			l.t.Errorf("counts of %s are %+v", id, a.Counts)
		}
		l.drain()
	})
}

// lostSet checks that a setting applies to all once an unanswered Set was repeated.
func lostSet(l *losses) {
	rate := 0.0
	l.of(func(id string) {
		rate++
		start(l.t, l.store, webhooks(id), 20)
	}, func(string) error {
		return l.store.Set(l.t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: rate}})
	}, func(id string, _ bool) {
		l.clock.advance(time.Second)
		if _, err := admit(l.t.Context(), l.store, 20); err != nil {
			l.t.Fatal(err)
		}
		jobs, err := l.store.Lease(l.t.Context(), request(20))
		if err != nil || len(jobs) != int(rate) {
			l.t.Errorf("%d jobs leased, %v; want %v", len(jobs), err, rate)
		}
		settings, err := l.store.Settings(l.t.Context())
		if err != nil || settings.Limits.RequestsPerSecond != rate {
			l.t.Errorf("the limit is %+v, %v; want %v", settings.Limits, err, rate)
		}
		l.drain()
	})
}

func lostEvents(l *losses) {
	publish := func() (ids []string) {
		for {
			events, upTo, err := l.store.Events(l.t.Context())
			if err != nil {
				l.t.Fatal(err)
			}
			if len(events) == 0 {
				return ids
			}
			for _, e := range events {
				ids = append(ids, e.ID)
			}
			if err := l.store.Published(l.t.Context(), upTo); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	publish()
	l.of(func(string) {}, func(string) error { return l.store.KeepEvents(l.t.Context(), 1000) }, func(string, bool) {})
	var upTo uint64
	var told []bulk.Event
	l.of(func(id string) { upload(l.t, l.store, webhooks(id), 0) }, func(id string) (err error) {
		if told, upTo, err = l.store.Events(l.t.Context()); err != nil {
			return err
		}
		if len(told) > 0 && (len(told) != 1 || told[0].Action != id) {
			l.t.Errorf("told %+v, want the event of %s", told, id)
		}
		return l.store.Published(l.t.Context(), upTo)
	}, func(id string, twice bool) {
		if len(told) == 0 && !twice {
			l.t.Errorf("no event of %s", id)
		}
		if left := publish(); len(left) != 0 {
			l.t.Errorf("%q are left", left)
		}
	})
}

// lostOpen checks that a store whose answers to Open were lost can be opened again,
// unchanged.
func lostOpen(l *losses) {
	n := 0
	l.of(func(string) { n++ }, func(id string) error {
		s, err := Open(l.t.Context(), Options{URL: l.proxy.url(), Prefix: id, Shards: 2, Bulk: unlimited(), Instance: "one", Logger: quiet})
		if err == nil {
			err = s.Close()
		}
		return err
	}, func(id string, _ bool) {
		everything(l.t, open(l.t, Options{URL: l.proxy.url(), Prefix: id, Instance: "one"}))
	})
}
