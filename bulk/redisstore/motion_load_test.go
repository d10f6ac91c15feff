//go:build redis && long

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

const (
	trafficJobs  = 60 // of an action; every tenth is a dead letter
	trafficChunk = 20
	trafficAhead = 3 // actions of a client that have not completed
)

// traffic is two instances and a client of each: it uploads actions of all shards, in turns without
// a target, against one with a rate, and against one with a low concurrency.
type traffic struct {
	t       *testing.T
	cluster *redistest.Cluster
	load    load
	seen    *starts
	stores  []*Store
	engines []*engine.Engine
	// loses is set when a replica takes over: writes may be lost then, and clients begin again
	// from what is there.
	loses   bool
	enough  atomic.Bool // clients end
	clients sync.WaitGroup
	mu      sync.Mutex
	sent    []string // the ids of actions
}

func newTraffic(t *testing.T, loses bool) *traffic {
	tr := &traffic{
		t: t, cluster: redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1}), loses: loses, load: load{rate: 200, targetRate: 60},
		seen: newStarts(testWindow, testLease),
	}
	config := bulk.Config{
		RequestsPerSecond: tr.load.rate, Window: testWindow, Lease: testLease,
		DispatchInterval: 20 * time.Millisecond, FetchInterval: 40 * time.Millisecond,
	}.WithDefaults()
	handle := func(ctx context.Context, j *bulk.Job) ([]byte, error) {
		result, err := tr.seen.handle(ctx, j)
		if j.Index%10 == 0 {
			err = bulk.SkipRetry
		}
		return result, err
	}
	mux := bulk.NewMux()
	mux.HandleFunc("work", handle)
	mux.HandleFunc(bulk.WebhookType, handle)
	for n := range 2 {
		s := open(t, Options{URL: tr.cluster.URL(), Shards: 6, Bulk: config, Instance: fmt.Sprint(n), CallTimeout: 2 * time.Second})
		tr.stores, tr.engines = append(tr.stores, s), append(tr.engines, run(t, s, config, mux))
	}
	tr.load.setTargets(t, tr.stores[0])
	for n := range 2 {
		tr.clients.Go(func() { tr.client(n) })
	}
	t.Cleanup(func() {
		tr.enough.Store(true)
		tr.clients.Wait()
	})
	return tr
}

func (tr *traffic) spec(client, n int) bulk.Spec {
	spec := bulk.Spec{
		ID: fmt.Sprintf("c%d-%d", client, n), Tenant: tenantOn(tr.stores[0], (n+3*client)%6), Type: "work", Aggregate: []string{"sum:n"},
	}
	if name := []string{"", "rated", "narrow"}[n%3]; name != "" {
		spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: name, URL: "http://" + name + "/"}
	}
	return spec
}

// client uploads actions until it is told that they are enough.
func (tr *traffic) client(client int) {
	for n := 0; !tr.enough.Load() && !tr.t.Failed(); n++ {
		spec := tr.spec(client, n)
		for !tr.submit(client, spec) && !tr.t.Failed() {
		}
		tr.mu.Lock()
		tr.sent = append(tr.sent, spec.ID)
		tr.mu.Unlock()
		if n >= trafficAhead {
			tr.await(client, n-trafficAhead)
		}
	}
}

// call repeats a call while its store is unavailable. It returns false if something was lost that
// may be lost.
func (tr *traffic) call(what string, f func() error) bool {
	for !tr.t.Failed() {
		err := f()
		switch {
		case err == nil:
			return true
		case errors.Is(err, bulk.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		case tr.loses:
			return false
		default:
			tr.t.Errorf("%s: %v", what, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-tr.t.Context().Done():
		}
	}
	return true
}

// submit does what is missing of an upload.
func (tr *traffic) submit(client int, spec bulk.Spec) bool {
	ctx, s := tr.t.Context(), tr.stores[client]
	var received int64
	if !tr.call("create "+spec.ID, func() error {
		a, _, err := s.Create(ctx, spec)
		received = a.Received
		return err
	}) {
		return false
	}
	for received < trafficJobs {
		list := payloads(int(received), int(min(trafficChunk, trafficJobs-received)))
		if !tr.call("append to "+spec.ID, func() (err error) {
			received, err = s.Append(ctx, spec.ID, received, list)
			return err
		}) {
			return false
		}
	}
	return tr.call("seal "+spec.ID, func() error {
		_, err := tr.engines[1-client].Seal(ctx, spec.ID, trafficJobs)
		return ignore(err, bulk.ErrNoChange)
	})
}

// await waits until an action has completed.
func (tr *traffic) await(client, n int) {
	spec := tr.spec(client, n)
	until.Succeeds(tr.t, spec.ID, func() error {
		a, err := tr.stores[1-client].Action(tr.t.Context(), spec.ID)
		switch {
		case tr.t.Failed() || err == nil && a.Status == bulk.Completed:
			return nil
		case tr.loses && (errors.Is(err, bulk.ErrNotFound) || err == nil && a.Status == bulk.Created):
			tr.submit(client, spec)
		case err != nil && !errors.Is(err, bulk.ErrUnavailable):
			tr.t.Errorf("%s: %v", spec.ID, err)
		}
		return fmt.Errorf("it is %s: %+v, %w", a.Status, a.Counts, err)
	})
}

// end lets the clients end, and checks that each action is there once with each job counted once.
func (tr *traffic) end() {
	tr.t.Helper()
	tr.enough.Store(true)
	tr.clients.Wait()
	for client := range 2 {
		for n := range len(tr.sent) {
			if slices.Contains(tr.sent, tr.spec(client, n).ID) {
				tr.await(client, n)
			}
		}
	}
	times := map[string]int{}
	var all []bulk.Action
	recovered(tr.t, func() (err error) {
		all, err = tr.stores[0].Actions(tr.t.Context(), bulk.ActionFilter{})
		return err
	})
	for _, a := range all {
		times[a.ID]++
		if a.Status != bulk.Completed || a.Received != trafficJobs || a.Succeeded != trafficJobs*9/10 || a.Failed != trafficJobs/10 {
			tr.t.Errorf("%s is %s: %+v", a.ID, a.Status, a.Counts)
		}
		// The numbers up to 59 add up to 1770, and those of the dead letters to 150.
		if got := string(a.Result["sum:n"]); got != `"1620"` {
			tr.t.Errorf("the sum of %s is %s, want 1620", a.ID, got)
		}
		var dead []bulk.DeadLetter
		recovered(tr.t, func() (err error) {
			dead, err = tr.stores[1].DeadLetters(tr.t.Context(), a.ID, 0, trafficJobs)
			return err
		})
		if len(dead) != trafficJobs/10 {
			tr.t.Errorf("%s has %d dead letters", a.ID, len(dead))
		}
	}
	for _, id := range tr.sent {
		if times[id] != 1 {
			tr.t.Errorf("%s is there %d times", id, times[id])
		}
	}
	if len(all) != len(tr.sent) {
		tr.t.Errorf("%d actions are there, of %d", len(all), len(tr.sent))
	}
	tr.t.Logf("%d actions", len(all))
}

// stopped waits until an instance has noticed that a shard, or the hub, has stopped.
func (tr *traffic) stopped(base string) {
	tr.t.Helper()
	until.True(tr.t, base+" is stopped", func() bool {
		// It expects a schedule that is not there, so it changes nothing.
		_, err := exec(tr.t.Context(), tr.stores[0], schedulePutScript, base+"schedules", []string{"none", "1", "", "1"}, asInt)
		return tr.t.Failed() || errors.Is(err, bulk.ErrUnavailable)
	})
}

// goesOn waits until those of some shards answer.
func (tr *traffic) goesOn(bases []string) {
	tr.t.Helper()
	for shard, base := range tr.stores[0].shards {
		if slices.Contains(bases, base) {
			recovered(tr.t, func() error {
				_, err := onAnyShard(tr.t.Context(), tr.stores[0], lookScript, shard, readLook, number(maxQuota), "1")
				return err
			})
		}
	}
}

// TestSlotsMove checks that nothing is lost, doubled or begun beyond a limit while the slots of the
// hub and of all shards move to another master and on to a third, and each third move is left half
// way for a while and then continued.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	tr := newTraffic(t, false)
	bases := append([]string{tr.stores[0].hub}, tr.stores[0].shards...)
	for n := range 2 * len(bases) {
		base := bases[n%len(bases)]
		tr.submitted(n)
		to := elsewhere(tr.cluster, base)
		move := tr.cluster.BeginMove(base, to)
		for step := 0; step < 3 && move.Step(3); step++ {
			tr.stopped(base)
		}
		if n%3 == 0 {
			tr.goesOn(slices.DeleteFunc(slices.Clone(bases), func(other string) bool { return other == base }))
			move = tr.cluster.BeginMove(base, to)
		}
		move.End()
		tr.goesOn(bases)
	}
	tr.end()
	tr.seen.checkAll(t, tr.load)
	there := 0
	for _, base := range tr.stores[0].shards {
		there += strings.Count(tr.cluster.MasterOf(base).Cli("KEYS", base+"a:*"), base)
	}
	if there != len(tr.sent) {
		t.Errorf("%d actions are in the shards, of %d", there, len(tr.sent))
	}
}

// submitted waits until clients have uploaded a number of actions.
func (tr *traffic) submitted(n int) {
	tr.t.Helper()
	until.True(tr.t, fmt.Sprint(n, " actions are uploaded"), func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.sent) >= n
	})
}

// TestMastersAreKilled checks that clients that begin again from what is there get all their jobs
// run and counted once, when replicas take over the hub and shards without the newest writes.
func TestMastersAreKilled(t *testing.T) {
	t.Parallel()
	tr := newTraffic(t, true)
	for n, base := range []string{tr.stores[0].hub, tr.stores[0].shards[0], tr.stores[0].shards[1]} {
		tr.submitted(8 * (n + 1))
		tr.cluster.TakeOver(tr.cluster.MasterOf(base))
		tr.goesOn(tr.stores[0].shards)
	}
	tr.end()
}
