//go:build redis && long

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// motion is a store on a cluster, with an action on each of three shards.
type motion struct {
	t       *testing.T
	cluster *redistest.Cluster
	store   *Store
	jobs    []bulk.Job // those in flight of shard 0
}

func newMotion(t *testing.T) *motion {
	m := &motion{t: t, cluster: redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1})}
	m.store = open(t, Options{URL: m.cluster.URL(), Shards: 3})
	start(t, m.store, m.spec(0), 20)
	m.jobs = take(t, m.store, 5)
	for shard := 1; shard < 3; shard++ {
		start(t, m.store, m.spec(shard), 20)
	}
	return m
}

func (m *motion) spec(shard int) bulk.Spec {
	return bulk.Spec{ID: fmt.Sprint("a", shard), Tenant: tenantOn(m.store, shard), Type: "echo", Aggregate: []string{"count"}}
}

// elsewhere returns a master that does not have a key.
func elsewhere(cluster *redistest.Cluster, key string) *redistest.Server {
	for _, master := range cluster.Masters() {
		if master != cluster.MasterOf(key) {
			return master
		}
	}
	return nil // there are three
}

// refused checks that what needs a shard whose slot moves is unavailable, for this instance and for
// a new one, and what needs another shard is not.
func (m *motion) refused(when string) {
	m.t.Helper()
	for name, call := range map[string]func() error{
		"Action": func() error { _, err := m.store.Action(m.t.Context(), "a0"); return err },
		"Create": func() error { _, _, err := m.store.Create(m.t.Context(), m.spec(0)); return err },
		"Append": func() error { _, err := m.store.Append(m.t.Context(), "a0", 20, payloads(20, 1)); return err },
		"Settle": func() error {
			_, err := m.store.Settle(m.t.Context(), settlements(bulk.Succeeded, m.jobs))
			return err
		},
		"a new action": func() error {
			spec := m.spec(0)
			spec.ID = "new"
			_, _, err := m.store.Create(m.t.Context(), spec)
			return err
		},
		"Open": func() error {
			s, err := Open(m.t.Context(), Options{URL: m.cluster.URL(), Bulk: unlimited(), Logger: quiet})
			if err == nil {
				_ = s.Close()
			}
			return err
		},
	} {
		m.store.looked(0, nil) // or it would not be asked: it is silent
		if err := call(); !errors.Is(err, bulk.ErrUnavailable) {
			m.t.Errorf("%s %s: %v, want bulk.ErrUnavailable", name, when, err)
		}
	}
	if n := waiting(m.t, m.store); n != 2 {
		m.t.Errorf("%d actions wait %s, want those of the two shards that do not move", n, when)
	}
	jobs, err := m.store.Lease(m.t.Context(), request(100))
	if err != nil {
		m.t.Errorf("Lease %s: %v", when, err)
	}
	for _, j := range jobs {
		if j.Spec.ID == "a0" {
			m.t.Errorf("%s was leased %s", j.ID(), when)
		}
	}
	action(m.t, m.store, "a1")
}

// whole checks that nothing was lost and nothing was done twice, once all is back.
func (m *motion) whole() {
	m.t.Helper()
	recovered(m.t, func() error { _, err := m.store.Action(m.t.Context(), "a0"); return err })
	var verdicts []bulk.Verdict
	recovered(m.t, func() (err error) {
		verdicts, err = m.store.Settle(m.t.Context(), settlements(bulk.Succeeded, m.jobs))
		return err
	})
	for _, v := range verdicts {
		if v != bulk.Accepted {
			m.t.Errorf("the verdicts after the move are %v", verdicts)
			break
		}
	}
	if a := action(m.t, m.store, "a0"); a.Received != 20 || a.Succeeded != 5 || a.Pending != 15 {
		m.t.Errorf("the counts after the move are %+v", a.Counts)
	}
	recovered(m.t, func() error {
		_, created, err := m.store.Create(m.t.Context(), m.spec(0))
		if created {
			m.t.Error("the action was there, and was created again")
		}
		return err
	})
	all, err := m.store.Actions(context.Background(), bulk.ActionFilter{})
	times := map[string]int{}
	for _, a := range all {
		times[a.ID]++
	}
	// The new one may have its number: it was refused in the middle of its creation.
	if err != nil || times["a0"] != 1 || times["a1"] != 1 || times["a2"] != 1 {
		m.t.Errorf("the actions are there %v times, %v", times, err)
	}
	if n := len(take(m.t, m.store, 15)); n != 15 {
		m.t.Errorf("%d jobs remain, want 15", n)
	}
}

// trusted checks that no empty shard is made though an instance has not noticed anything of a move
// and a failover.
func (m *motion) trusted(key string) {
	m.t.Helper()
	had := m.cluster.MasterOf(key).Cli("EXISTS", key+"shard")
	m.store.wholes.mu.Lock()
	m.store.wholes.of[key] = true
	m.store.wholes.mu.Unlock()
	_, err := exec(m.t.Context(), m.store, lookScript, key, []string{"", m.store.windowMillis, number(maxQuota), "1"}, asArray)
	if had == "0" && !errors.Is(err, bulk.ErrUnavailable) {
		m.t.Errorf("a shard that is elsewhere: %v, want bulk.ErrUnavailable", err)
	}
	if has := m.cluster.MasterOf(key).Cli("EXISTS", key+"shard"); has != had {
		m.t.Errorf("the shard is there %s times after a call, want %s", has, had)
	}
	m.store.failed(key, bulk.ErrUnavailable)
}

// TestASlotInMotion checks that a shard stops while its slot moves, in every state of the move, and
// goes on when it has moved.
func TestASlotInMotion(t *testing.T) {
	t.Parallel()
	m := newMotion(t)
	key := m.store.shards[0]
	to := elsewhere(m.cluster, key)
	move := m.cluster.BeginMove(key, to)
	m.refused("before the first key has moved")
	move.Step(2)
	move.Abandon()
	m.refused("when the move was abandoned")
	move = m.cluster.BeginMove(key, to)
	for n := 2; move.Step(2); n++ {
		m.refused(fmt.Sprintf("after %d keys have moved", 2*n))
	}
	m.refused("when all keys have moved")
	move.End()
	m.whole()
}

// TestASlotInMotionAndItsMasterIsKilled checks that a shard remains stopped when a replica takes
// over in the middle of a move to a new master: the replica does not know that some keys have moved.
func TestASlotInMotionAndItsMasterIsKilled(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]int{"few keys have moved": 2, "all keys have moved": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMotion(t)
			key, to := m.store.shards[0], m.cluster.AddMaster()
			move := m.cluster.BeginMove(key, to)
			m.refused("before the first key has moved")
			move.Step(keys)
			m.refused("half way")
			m.cluster.AwaitReplicas()
			m.cluster.TakeOver(m.cluster.MasterOf(key))
			m.cluster.AwaitOK()
			recovered(t, func() error { _, err := m.store.Action(t.Context(), "a1"); return err })
			recovered(t, func() error { _, err := m.store.Action(t.Context(), "a2"); return err })
			m.refused("after a replica took over")
			m.trusted(key)
			m.cluster.BeginMove(key, to).End()
			m.whole()
		})
	}
}
