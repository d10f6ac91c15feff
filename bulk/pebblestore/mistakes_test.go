//go:build long && !race

package pebblestore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var mistakes = map[string]mistake{
	// Uploads and actions.
	"create overwrites": by("upload", func(f *faulty) {
		f.create = func(spec bulk.Spec) (bulk.Action, bool, error) {
			a, created, err := f.Store.Create(ctx, spec)
			if errors.As(err, new(*bulk.ExistsError)) {
				err = nil
			}
			return a, created, err
		}
	}),
	"append after seal": by("upload model", func(f *faulty) {
		f.append = func(id string, offset int64, payloads [][]byte) (int64, error) {
			received, err := f.Store.Append(ctx, id, offset, payloads)
			if errors.As(err, new(*bulk.TransitionError)) {
				return received + int64(len(payloads)), nil
			}
			return received, err
		}
	}),
	"overlap appended": by("upload model", func(f *faulty) {
		f.append = func(id string, offset int64, payloads [][]byte) (int64, error) {
			if a, err := f.Store.Action(ctx, id); err == nil && offset < a.Received {
				offset = a.Received
			}
			return f.Store.Append(ctx, id, offset, payloads)
		}
	}),
	"payload not copied": by("upload", func(f *faulty) {
		kept := map[string][]byte{}
		f.append = func(id string, offset int64, payloads [][]byte) (int64, error) {
			for i, p := range payloads {
				kept[bulk.JobID(id, offset+int64(i))] = p
			}
			return f.Store.Append(ctx, id, offset, payloads)
		}
		f.lease = func(r bulk.LeaseRequest) ([]bulk.Job, error) {
			jobs, err := f.Store.Lease(ctx, r)
			for i := range jobs {
				jobs[i].Payload = kept[jobs[i].ID()]
			}
			return jobs, err
		}
	}),
	"last in first out": leases("upload model", slices.Reverse[[]bulk.Job]),
	"unfinished forgets canceled": by("actions model", func(f *faulty) {
		f.list = func(filter bulk.ActionFilter, actions []bulk.Action) []bulk.Action {
			return slices.DeleteFunc(actions, func(a bulk.Action) bool { return filter.Unfinished && a.Status == bulk.Canceled })
		}
	}),

	// Admission and shares.
	"pause is only shown": by("admit model", func(f *faulty) {
		paused := map[string]bool{}
		f.transition = func(id string, transition bulk.Transition) (bulk.Action, error) {
			switch transition.Kind {
			case bulk.Pause:
				paused[id] = true
				return f.Store.Action(ctx, id)
			case bulk.Resume:
				delete(paused, id)
			}
			return f.Store.Transition(ctx, id, transition)
		}
		f.show = func(a *bulk.Action) { a.Paused = paused[a.ID] }
	}),
	"paused in backlog": by("admit model", func(f *faulty) {
		f.backlog = func(*bulk.Backlog) {
			for _, a := range f.actions {
				if a.record.Paused {
					f.Store.backlog.fair.Set(&a.queued, a.holding.of, a.line.tags(), 0, a.waiting(), a.granted)
				}
			}
		}
	}),
	"cancel keeps non-ready": by("admit model", func(f *faulty) {
		kept := map[string]int64{}
		f.transition = func(id string, transition bulk.Transition) (bulk.Action, error) {
			before, _ := f.Store.Action(ctx, id)
			after, err := f.Store.Transition(ctx, id, transition)
			if transition.Kind == bulk.Cancel && err == nil {
				kept[id] = before.NonReadyTotal()
			}
			return after, err
		}
		f.show = func(a *bulk.Action) {
			a.Counts.Canceled -= kept[a.ID]
			a.NonReady[bulk.TransientError] += kept[a.ID]
		}
	}),
	"canceled jobs come back": by("admit model", func(f *faulty) {
		back := map[string]int64{}
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			for _, s := range settlements {
				if a := f.actions[s.Lease.Action]; a != nil && a.record.Status == bulk.Canceled && s.Kind > bulk.FailedForGood && s.Kind < bulk.Extended {
					back[a.spec.ID]++
				}
			}
			return f.Store.Settle(ctx, settlements)
		}
		f.show = func(a *bulk.Action) {
			a.Counts.Canceled -= back[a.ID]
			a.Pending += back[a.ID]
		}
	}),
	"weight ignored": sets("admit", func(_ *faulty, c *bulk.SettingsChange) {
		if c.Tenant != nil {
			c.Tenant = &bulk.Tenant{RequestsPerSecond: c.Tenant.RequestsPerSecond}
		}
	}),
	"keys are not charged": by("admit", func(f *faulty) {
		f.before = func() {
			for _, a := range f.actions {
				a.granted = 0
			}
		}
	}),
	"keys are charged once for each job": by("admit", func(f *faulty) {
		f.before = func() {
			for _, a := range f.actions {
				a.granted = a.next
			}
		}
	}),
	"newcomer claims the past": by("admit", func(f *faulty) {
		f.backlog = func(b *bulk.Backlog) {
			f.Store.backlog.fair.Advance(b.Now, 0, func(string) float64 { return 0 })
		}
	}),

	// Limits.
	"ready not counted": within("limits model", func(s *Store) {
		for _, c := range s.counters() {
			c.ready = 0
		}
	}),
	"idle types hold slots": within("limits model", func(s *Store) {
		for name := range s.types {
			s.wake(name, s.window(s.now()))
		}
	}),
	"concurrency ignored": sets("limits model", func(_ *faulty, c *bulk.SettingsChange) {
		if c.Target != nil {
			c.Target.Concurrency = 0
		}
	}),
	"lease ignores limits": by("limits model", func(f *faulty) {
		f.lease = func(r bulk.LeaseRequest) ([]bulk.Job, error) {
			var limits []bulk.Limit
			counters := f.counters()
			for _, c := range counters {
				limits = append(limits, c.limit)
				c.limit = bulk.Limit{}
			}
			jobs, err := f.Store.Lease(ctx, r)
			for i, c := range counters {
				c.limit = limits[i]
			}
			return jobs, err
		}
	}),
	"reopen forgets starts": atReopen("restart model", func(s *Store) { s.shutUntil = time.Time{} }),
	"quotas ignored": sets("quotas model", func(_ *faulty, c *bulk.SettingsChange) {
		if c.Tenant != nil {
			t := *c.Tenant
			t.MaxActions, t.MaxJobs, t.MaxBytes = 0, 0, 0
			c.Tenant = &t
		}
	}),
	"reopen forgets what is stored": atReopen("quotas model", func(s *Store) {
		for _, t := range s.tenants {
			t.stored = bulk.Stored{}
		}
	}),

	// Found rates.
	"limits by key ignored": sets("model keys", func(_ *faulty, c *bulk.SettingsChange) {
		if c.Tenant != nil {
			tenant := *c.Tenant
			tenant.Keys, c.Tenant = nil, &tenant
		}
	}),
	"places of keys are not kept": within("keys", func(s *Store) {
		for _, t := range s.tenants {
			for _, k := range t.keyed {
				k.awake = 0
			}
		}
	}),
	"reopen forgets keys in flight": atReopen("keys", func(s *Store) {
		for _, t := range s.tenants {
			t.keyed = nil
		}
	}),
	"auto without a limit": sets("auto", func(_ *faulty, c *bulk.SettingsChange) {
		if c.Target != nil {
			c.Target.Auto = false
		}
	}),
	"auto learns nothing": within("auto", func(s *Store) {
		for _, t := range s.autos {
			t.auto.sample = bulk.AutoSample{}
		}
	}),
	"auto ignores throttles": within("auto", func(s *Store) {
		for _, t := range s.autos {
			t.auto.sample.Throttled = 0
		}
	}),
	"auto rises when idle": within("auto", func(s *Store) {
		window := s.window(s.now())
		for _, t := range s.autos {
			if sample := &t.auto.sample; s.autoWindow < window && sample.Throttled == 0 {
				n := int64(t.limit.RequestsPerSecond)
				t.auto.rate.Observe(bulk.AutoSample{Window: s.autoWindow, Length: s.config.Window, Started: n, Passed: n, Held: true})
			}
		}
	}),
	"auto learns at once": settled("auto", func(f *faulty, _ *bulk.Settlement) {
		for _, t := range f.autos {
			t.observe(f.config.Window, f.autoWindow, true)
			t.limit.RequestsPerSecond = t.auto.rate.Rate()
		}
	}),
	"auto starts again": sets("auto", func(f *faulty, c *bulk.SettingsChange) {
		if c.Target != nil && c.Target.Auto {
			_ = f.Store.Set(ctx, bulk.SettingsChange{Name: c.Name, Target: &bulk.TargetLimits{}})
		}
	}),
	"auto outlives its setting": sets("auto", func(f *faulty, c *bulk.SettingsChange) {
		if c.Target != nil {
			c.Target.Auto = c.Target.Auto || f.autos[c.Name] != nil
		}
	}),
	"reopen forgets auto": atReopen("auto", func(s *Store) {
		for name := range s.autos {
			_ = s.Set(ctx, bulk.SettingsChange{Name: name, Target: &bulk.TargetLimits{}})
		}
	}),

	// Leases and settlements.
	"types not in turn": by("lease", func(f *faulty) {
		f.lease = func(r bulk.LeaseRequest) (jobs []bulk.Job, err error) {
			for _, name := range r.Types {
				one := r
				one.Types, one.Max = []string{name}, r.Max-len(jobs)
				some, err := f.Store.Lease(ctx, one)
				if err != nil {
					return jobs, err
				}
				jobs = append(jobs, some...)
			}
			return jobs, nil
		}
	}),
	"fence stands still": by("lease model", func(f *faulty) {
		fences := map[bulk.LeaseID]uint32{}
		f.lease = func(r bulk.LeaseRequest) ([]bulk.Job, error) {
			jobs, err := f.Store.Lease(ctx, r)
			for i := range jobs {
				l := &jobs[i].Lease
				fence := l.Fence
				l.Fence = 1
				fences[*l] = fence
			}
			return jobs, err
		}
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			settlements = slices.Clone(settlements)
			for i := range settlements {
				if l := &settlements[i].Lease; l.Fence == 1 {
					l.Fence = fences[*l]
				}
			}
			return f.Store.Settle(ctx, settlements)
		}
	}),
	"counts twice": by("lease model", func(f *faulty) {
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			verdicts, err := f.Store.Settle(ctx, settlements)
			for i, v := range verdicts {
				if v == bulk.Duplicate {
					verdicts[i] = bulk.Accepted
				}
			}
			return verdicts, err
		}
	}),
	"extend does nothing": settles("lease model", func(s *bulk.Settlement) { s.LeaseFor = min(s.LeaseFor, time.Nanosecond) }),
	"retry-after ignored": settles("retry model", func(s *bulk.Settlement) { s.RetryAfter = 0 }),
	"throttle uses an attempt": settled("retry model", func(f *faulty, s *bulk.Settlement) {
		if a := f.actions[s.Lease.Action]; a != nil && s.Kind == bulk.Throttled && a.jobs[s.Lease.Index] != nil {
			a.jobs[s.Lease.Index].attempts++
		}
	}),
	"spec attempts ignored": by("retry model", func(f *faulty) {
		f.create = func(spec bulk.Spec) (bulk.Action, bool, error) {
			a, created, err := f.Store.Create(ctx, spec)
			if live := f.find(spec.ID); live != nil {
				live.config.MaxAttempts = f.config.For(spec.Type).MaxAttempts
			}
			return a, created, err
		}
	}),
	"dispatch in index order": within("retry", func(s *Store) {
		for _, j := range slices.Clone(s.due.Items()) {
			if !j.at.After(s.now()) {
				s.due.Remove(j)
				j.at = time.Unix(0, int64(j.index))
				s.due.Set(j)
			}
		}
	}),
	"returned jobs go last": within("retry", func(s *Store) {
		for _, a := range s.actions {
			var fresh []*job
			for ; a.next > 0 && a.next < a.record.Received; a.next++ {
				fresh = append(fresh, s.newJob(a, uint32(a.next)))
			}
			a.returned.prepend(fresh)
		}
	}),
	"dispatch too early": by("retry model", func(f *faulty) {
		f.before = func() {
			for _, j := range f.due.Items() {
				if j.reason == reasonTransient {
					j.at = j.at.Add(-time.Second)
				}
			}
		}
	}),
	"expired for ever": within("lease model", func(s *Store) {
		for _, j := range s.leases.Items() {
			if j.at.Before(s.now()) {
				j.attempts = min(j.attempts, 1)
			}
		}
	}),
	"reopen ends remote leases": atReopen("restart model", func(s *Store) {
		for _, j := range s.leases.Items() {
			j.at = s.now().Add(-time.Second)
		}
	}),
	"crash uses an attempt": atReopen("restart model", func(s *Store) {
		for _, a := range s.actions {
			for _, j := range a.jobs {
				if j.crashes > 0 && j.phase == inLine {
					j.attempts++
				}
			}
		}
	}),
	"crashes for ever": {nil, []string{"restart", "model"}},

	// Results.
	"outcomes without aggregate": by("results model", func(f *faulty) {
		f.show = func(a *bulk.Action) {
			if len(a.Aggregate) == 0 {
				a.Batches = uint64(a.Done())
			}
		}
	}),
	"errors not cut": by("results", func(f *faulty) {
		long := ""
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			for _, s := range settlements {
				if len(s.Error) > bulk.MaxErrorBytes {
					long = s.Error
				}
			}
			return f.Store.Settle(ctx, settlements)
		}
		f.dead = func(letters []bulk.DeadLetter) []bulk.DeadLetter {
			for i := range letters {
				if strings.HasPrefix(long, letters[i].Error) {
					letters[i].Error = long
				}
			}
			return letters
		}
	}),
	"no dead letters": by("results model", func(f *faulty) {
		f.dead = func([]bulk.DeadLetter) []bulk.DeadLetter { return nil }
	}),

	// Schedules.
	"schedules without revisions": by("schedules", func(f *faulty) {
		f.put = func(s bulk.Schedule) (bulk.Schedule, error) {
			put, err := f.Store.PutSchedule(ctx, s)
			if errors.Is(err, bulk.ErrConflict) {
				all, _ := f.Store.Schedules(ctx)
				s.Revision = 0
				for _, other := range all {
					if other.Name == s.Name {
						s.Revision = other.Revision
					}
				}
				return f.Store.PutSchedule(ctx, s)
			}
			return put, err
		}
	}),
	"schedules begin again": by("schedules", func(f *faulty) {
		f.put = func(s bulk.Schedule) (bulk.Schedule, error) {
			f.revision = uint64(s.Revision)
			return f.Store.PutSchedule(ctx, s)
		}
	}),
	"schedules forgotten": atReopen("schedules", func(s *Store) {
		all, _ := s.Schedules(ctx)
		for _, schedule := range all {
			_ = s.RemoveSchedule(ctx, schedule.Name)
		}
	}),
	"schedules without bound": by("schedules", func(f *faulty) {
		f.put = func(s bulk.Schedule) (bulk.Schedule, error) {
			f.Store.schedules = 0
			return f.Store.PutSchedule(ctx, s)
		}
	}),
	"schedules of one name": by("schedules", func(f *faulty) {
		f.put = func(s bulk.Schedule) (bulk.Schedule, error) {
			s.Name = "the only one"
			return f.Store.PutSchedule(ctx, s)
		}
	}),
	"schedules as they came": by("schedules", func(f *faulty) {
		f.schedules = func(schedules []bulk.Schedule) []bulk.Schedule {
			slices.SortFunc(schedules, func(a, b bulk.Schedule) int { return int(a.Revision - b.Revision) })
			return schedules
		}
	}),
	"schedules stay": by("schedules", func(f *faulty) { f.remove = func(string) error { return nil } }),

	// Single jobs.
	"ready jobs are pending": by("jobs model", func(f *faulty) {
		f.job = func(j *bulk.JobState) {
			if j.State == bulk.StateReady {
				j.State = bulk.StatePending
			}
		}
	}),
	"places by index": by("jobs model", func(f *faulty) {
		f.job = func(j *bulk.JobState) {
			if j.State == bulk.StatePending {
				j.Before = j.Index
			}
		}
	}),
	"canceled jobs have failed": by("jobs model", func(f *faulty) {
		f.job = func(j *bulk.JobState) {
			if j.State == bulk.StateCanceled {
				j.State = bulk.StateFailed
			}
		}
	}),
	"replayed jobs have errors": by("jobs", func(f *faulty) {
		errors := map[int64]string{}
		f.job = func(j *bulk.JobState) {
			j.Error = cmp.Or(j.Error, errors[j.Index])
			errors[j.Index] = j.Error
		}
	}),

	// Events.
	"pause tells nobody":   publishes("events model", without(bulk.ActionPaused)),
	"failures tell nobody": publishes("events model", without(bulk.JobFailed)),
	"jobs tell twice": publishes("events model", func(events []bulk.Event) (twice []bulk.Event) {
		for _, e := range events {
			if twice = append(twice, e); e.Type == bulk.JobSucceeded || e.Type == bulk.JobFailed {
				twice = append(twice, e)
			}
		}
		return twice
	}),
	"newest first": publishes("events model", func(events []bulk.Event) []bulk.Event {
		slices.Reverse(events)
		return events
	}),
	"ids change": by("events model", func(f *faulty) {
		calls := 0
		f.events = func(events []bulk.Event) []bulk.Event {
			calls++
			for i := range events {
				events[i].ID += fmt.Sprint("-", calls)
			}
			return events
		}
	}),
	"ids of each action": publishes("events model", func(events []bulk.Event) []bulk.Event {
		for i := range events {
			events[i].ID = events[i].Action + events[i].Type
		}
		return events
	}),
	"job events unasked": by("events model", func(f *faulty) {
		f.create = func(spec bulk.Spec) (bulk.Action, bool, error) {
			a, created, err := f.Store.Create(ctx, spec)
			if live := f.find(spec.ID); live != nil {
				live.jobEvents = true
			}
			return a, created, err
		}
	}),
	"published comes again": by("events model", func(f *faulty) { f.published = func(uint64) error { return nil } }),
	"reopen forgets events": atReopen("events model", (*Store).empty),
	"turning off empties the outbox": by("events", func(f *faulty) {
		f.keep = func(most int64) error {
			if most == 0 {
				f.Store.empty()
			}
			return f.Store.KeepEvents(ctx, most)
		}
	}),
	"large results": by("events", func(f *faulty) {
		large := map[bulk.LeaseID][]byte{}
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			for _, s := range settlements {
				if len(s.Result) > bulk.MaxEventResult {
					large[s.Lease] = s.Result
				}
			}
			return f.Store.Settle(ctx, settlements)
		}
		f.events = func(events []bulk.Event) []bulk.Event {
			for i := range events {
				for lease, result := range large {
					if strings.HasSuffix(events[i].Subject, fmt.Sprint("-", lease.Index)) {
						r := bulk.JobResult{Action: events[i].Action, Index: int64(lease.Index), Succeeded: true, Result: result}
						e, _ := r.Event()
						events[i].Data = e.Data
					}
				}
			}
			return events
		}
	}),
	"outbox without bound": by("events", func(f *faulty) {
		f.keep = func(most int64) error { return f.Store.KeepEvents(ctx, min(most, 1)<<40) }
	}),
}
