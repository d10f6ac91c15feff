package natsstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

func TestPeers(t *testing.T) {
	p := newPeers(2)
	now := time.Now()
	for i, c := range []struct {
		do      func() bool
		changed bool
		alive   []int32
	}{
		{func() bool { return p.take([]byte(`{"node":1}`), now) }, true, []int32{1, 2}},
		{func() bool { return p.take([]byte(`{"node":1}`), now.Add(time.Second)) }, false, []int32{1, 2}},
		{func() bool { return p.take([]byte(`{"node":3}`), now.Add(time.Second)) }, true, []int32{1, 2, 3}},
		{func() bool { return p.take([]byte(`{"node":3,"leaving":true}`), now.Add(time.Second)) }, true, []int32{1, 2}},
		{func() bool { return p.take([]byte(`{"node":3}`), now.Add(2*time.Second)) }, true, []int32{1, 2, 3}},
		{func() bool { return p.take([]byte(`{"node":2,"leaving":true}`), now.Add(2*time.Second)) }, false, []int32{1, 2, 3}},
		{func() bool { return p.take([]byte(`{"node":0}`), now.Add(2*time.Second)) }, false, []int32{1, 2, 3}},
		{func() bool { return p.take([]byte(`nonsense`), now.Add(2*time.Second)) }, false, []int32{1, 2, 3}},
		{func() bool { return p.tick(now.Add(3 * time.Second)) }, false, []int32{1, 2, 3}},
		{func() bool { return p.tick(now.Add(time.Second + beatWithin)) }, true, []int32{2, 3}},
		{func() bool { return p.keepOnly([]int32{1}, now.Add(4*time.Second)) }, true, []int32{2}},
		{func() bool { return p.take([]byte(`{"node":1}`), now.Add(4*time.Second)) }, true, []int32{1, 2}},
		{func() bool { return p.keepOnly([]int32{1, 3}, now.Add(4*time.Second)) }, false, []int32{1, 2}},
	} {
		if changed := c.do(); changed != c.changed || !slices.Equal(p.now(), c.alive) {
			t.Fatalf("step %d: changed %v, alive %v, want %v", i+1, changed, p.now(), c.alive)
		}
	}
}

// Nodes that do not follow the metadata yet, and dead ones, are not waited for.
func TestPeersThatFollow(t *testing.T) {
	p := newPeers(2)
	now := time.Now()
	for i, c := range []struct {
		beat     string
		at       time.Duration
		followed bool // up to revision 7
	}{
		{`{"node":1}`, 0, true},
		{`{"node":1,"followed":6}`, 0, false},
		{`{"node":1,"followed":7}`, 0, true},
		{`{"node":3,"followed":1}`, 0, false},
		{`{"node":3}`, 0, true}, // it has started again
		{`{"node":3,"followed":1}`, time.Second, false},
		{`{"node":1,"followed":8}`, time.Second + beatWithin, true}, // 3 is dead
		{`{"node":3,"followed":1}`, time.Second + beatWithin, false},
		{`{"node":3,"leaving":true,"followed":1}`, time.Second + beatWithin, true},
	} {
		p.take([]byte(c.beat), now.Add(c.at))
		if got := p.followed(7); got != c.followed {
			t.Errorf("step %d, %s: followed %v", i+1, c.beat, got)
		}
	}
}

// followedIsKnownToOthers waits on one node until the others follow the metadata.
func followedIsKnownToOthers(t *testing.T, ns *nodes) {
	one, two, three := ns.node(1).Cluster(), ns.node(2).Cluster(), ns.node(3).Cluster()
	until.True(t, "all are alive", func() bool { return len(one.Alive()) == 3 })
	awaited := func(revision uint64) error {
		ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
		defer cancel()
		return one.AwaitFollowed(ctx, revision)
	}
	two.Followed(7)
	three.Followed(6)
	until.True(t, "node 3 is waited for", func() bool {
		briefly, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return errors.Is(one.AwaitFollowed(briefly, 7), context.DeadlineExceeded)
	})
	if err := awaited(6); err != nil {
		t.Fatalf("all follow so far: %v", err)
	}
	three.Followed(7)
	if err := awaited(7); err != nil {
		t.Fatalf("all follow further: %v", err)
	}
}
