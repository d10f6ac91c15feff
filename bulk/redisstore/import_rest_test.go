//go:build redis

package redisstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// compareVerdicts settles every lease ever given, in both stores.
func (b *imported) compareVerdicts(leases []bulk.Job) {
	var settlements []bulk.Settlement
	for i := range leases {
		settlements = append(settlements, settlementOf(b.t, &leases[i], bulk.Succeeded))
	}
	embedded, here := both(b, func(s bulk.Store) ([]bulk.Verdict, error) { return s.Settle(b.t.Context(), settlements) })
	for i := range embedded {
		b.seen[embedded[i].String()]++
		if embedded[i] != here[i] {
			b.t.Fatalf("the lease %+v is %s, but %s here", leases[i].Lease, embedded[i], here[i])
		}
	}
}

// compareJobs compares the states of single jobs, of each action the first and the last ones.
// Jobs that were lost are the first in their line in no particular order, so that the places of
// their action's jobs differ.
func (b *imported) compareJobs(image bulk.Image) {
	const some = 30
	for a, err := range image.Actions() {
		if err != nil {
			b.t.Fatal(err)
		}
		lost := b.lost(image, &a)
		for index := range a.Received {
			if index >= some && index < a.Received-some {
				continue
			}
			embedded, here := both(b, func(s bulk.Store) (bulk.JobState, error) {
				j, err := s.Job(b.t.Context(), a.ID, index)
				j.Number, j.At = 0, ms(j.At)
				return j, err
			})
			if here.State.Ended() && here.Attempts == bulk.NotKnown {
				embedded.Attempts = bulk.NotKnown
			}
			if a.Status == bulk.Canceled && a.Replays > 0 && here.State == bulk.StateFailed {
				embedded.State = bulk.StateFailed // see Store.Job
			}
			if lost {
				embedded.Before = here.Before
			}
			b.equal("job "+bulk.JobID(a.ID, index), embedded, here)
		}
	}
}

// lost reports whether a job of an action was in flight in the process of the embedded store.
func (b *imported) lost(image bulk.Image, a *bulk.ActionImage) bool {
	for jobs, err := range image.Jobs(a) {
		if err != nil {
			b.t.Fatal(err)
		}
		if slices.ContainsFunc(jobs, func(j bulk.JobImage) bool { return j.Local }) {
			return true
		}
	}
	return false
}

// compareRest runs the remaining jobs in both stores, and compares their attempts.
func (b *imported) compareRest() {
	for _, change := range []bulk.SettingsChange{
		{Limits: &bulk.Limits{}}, {Name: "t2", Tenant: &bulk.Tenant{}}, {Name: "api", Target: &bulk.TargetLimits{}},
	} {
		both(b, func(s bulk.Store) (struct{}, error) { return struct{}{}, s.Set(b.t.Context(), change) })
	}
	both(b, func(s bulk.Store) (struct{}, error) {
		actions, err := s.Actions(b.t.Context(), bulk.ActionFilter{Unfinished: true})
		for _, a := range actions {
			if a.Status == bulk.Created {
				_, err = s.Transition(b.t.Context(), a.ID, bulk.Transition{Kind: bulk.Seal, Total: a.Received})
				if err == nil {
					_, err = s.Transition(b.t.Context(), a.ID, bulk.Transition{Kind: bulk.Start})
				}
			}
			if a.Open {
				more := [][]byte{fmt.Append(nil, a.Received), fmt.Append(nil, a.Received+1)}
				if _, err = s.Append(b.t.Context(), a.ID, bulk.AtEnd, more); err == nil {
					_, err = s.Transition(b.t.Context(), a.ID, bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
				}
			}
			if err == nil && a.Paused && !a.Status.Final() {
				_, err = s.Transition(b.t.Context(), a.ID, bulk.Transition{Kind: bulk.Resume})
			}
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, err
	})
	ran := [2]map[string]string{{}, {}}
	for round := 0; ; round++ {
		left := 0
		for i, s := range []bulk.Store{b.embedded, b.here} {
			left += b.workRound(s, ran[i])
		}
		if left == 0 {
			break
		}
		if round == 300 {
			b.t.Fatalf("%d jobs are left after %d rounds", left, round)
		}
		pass(30 * time.Second)
	}
	b.equal("what workers were given", ran[0], ran[1])
}

// workRound runs the ready jobs, and returns how many jobs are left.
func (b *imported) workRound(s bulk.Store, ran map[string]string) (left int) {
	if _, _, err := s.Dispatch(b.t.Context(), 10_000); err != nil {
		b.t.Fatal(err)
	}
	admitAll(b.t, s)
	jobs, err := s.Lease(b.t.Context(), bulk.LeaseRequest{Types: []string{"echo", bulk.WebhookType, "end"}, Max: 10_000, LeaseFor: time.Minute})
	if err != nil {
		b.t.Fatal(err)
	}
	var settlements []bulk.Settlement
	for i := range jobs {
		j := &jobs[i]
		ran[j.ID()] += fmt.Sprintf(" %s attempt %d fence %d", j.Payload, j.Attempt, j.Lease.Fence)
		settlements = append(settlements, settlementOf(b.t, j, bulk.Succeeded))
	}
	verdicts, err := s.Settle(b.t.Context(), settlements)
	if err != nil {
		b.t.Fatal(err)
	}
	for i, v := range verdicts {
		if v != bulk.Accepted {
			b.t.Fatalf("the lease %+v is %s", jobs[i].Lease, v)
		}
	}
	completeAll(b.t, s)
	actions, err := s.Actions(b.t.Context(), bulk.ActionFilter{Unfinished: true})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range actions {
		left += int(a.Received - a.Done())
	}
	return left
}
