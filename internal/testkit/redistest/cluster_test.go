//go:build redis

package redistest_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

func TestAClusterHasItsKeysOnAllMasters(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Persist: redistest.Always})
	keys := 60
	for n := range keys {
		key := fmt.Sprint("key-", n)
		// Another master would answer MOVED, which is an error here.
		cluster.MasterOf(key).Cli("SET", key, "there")
	}
	has := func() (all int64) {
		for n, master := range cluster.Masters() {
			size := master.Size()
			if size == 0 {
				t.Errorf("master %d has no keys", n)
			}
			all += size
		}
		return all
	}
	if got := has(); got != int64(keys) {
		t.Errorf("%d keys, want %d", got, keys)
	}
	cluster.Masters()[1].Restart()
	cluster.AwaitOK()
	if got := has(); got != int64(keys) {
		t.Errorf("%d keys after a restart, want %d", got, keys)
	}
	for n := range keys {
		key := fmt.Sprint("key-", n)
		if got := cluster.MasterOf(key).Cli("GET", key); got != "there" {
			t.Errorf("%s is %q after a restart", key, got)
		}
	}
}

func TestTheURLOfAClusterNamesAllMasters(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Masters: 2})
	parsed, err := url.Parse(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	masters := cluster.Masters()
	if parsed.Scheme != "redis" || parsed.Host != masters[0].Addr() || len(parsed.Query()["addr"]) != 1 || parsed.Query().Get("addr") != masters[1].Addr() {
		t.Errorf("%s of the masters %s and %s", cluster.URL(), masters[0].Addr(), masters[1].Addr())
	}
}

func TestASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1})
	from := cluster.MasterOf("{a}")
	to := cluster.Masters()[0]
	if to == from {
		to = cluster.Masters()[1]
	}
	for n := range 5 {
		from.Cli("SET", fmt.Sprint("{a}\n", n), "there")
	}
	cluster.BeginMove("{a}", to).Step(2)
	if to.Size() != 2 || from.Size() != 3 {
		t.Errorf("%d keys are at the source and %d at the destination, want 3 and 2", from.Size(), to.Size())
	}
	cluster.AwaitReplicas()
	from = cluster.TakeOver(from)
	cluster.BeginMove("{a}", to).End()
	if to.Size() != 5 || from.Size() != 0 || cluster.MasterOf("{a}") != to {
		t.Errorf("%d keys are at the destination and %d at the source, want 5 and none", to.Size(), from.Size())
	}
	if got := cluster.MasterOf("{a}").Cli("GET", "{a}\n4"); got != "there" {
		t.Errorf("a key that has moved is %q", got)
	}
	cluster.AwaitOK()
}
