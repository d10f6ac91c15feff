//go:build redis

package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestACluster checks that every script, and every other command, uses only keys of its shard
// or of the hub: a cluster refuses scripts with keys of several slots. Each master has a part
// of the shards.
func TestACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	for _, master := range cluster.Masters() {
		master.Cli(slices.Concat([]string{"ACL", "SETUSER", "sluice", "on", ">password", "~everything:bulk:*"}, fewRights,
			[]string{"+cluster|slots", "+cluster|shards", "+cluster|countkeysinslot"})...)
	}
	url := strings.Replace(cluster.URL(), "redis://", "redis://sluice:password@", 1)
	everything(t, open(t, Options{URL: url, Prefix: "everything:", Instance: "one"}))

	config := bulk.Config{RequestsPerSecond: 1e6}.WithDefaults()
	var ran atomic.Int64
	var stores []*Store
	var engines []*engine.Engine
	for n := range 2 {
		s := open(t, Options{URL: cluster.URL(), Bulk: config, Instance: fmt.Sprint(n)})
		stores, engines = append(stores, s), append(engines, run(t, s, config, counting(&ran)))
	}
	for n := range 20 {
		id := fmt.Sprint("a", n)
		upload(t, stores[n%2], bulk.Spec{ID: id, Tenant: fmt.Sprint("tenant", n), Type: "work", Aggregate: []string{"sum:n"}}, 100)
		if _, err := engines[(n+1)%2].Seal(t.Context(), id, 100); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 20 {
		completed(t, stores[n%2], fmt.Sprint("a", n), 100)
	}
	if ran.Load() != 2000 {
		t.Errorf("%d jobs ran, of 2,000", ran.Load())
	}
	for n, master := range cluster.Masters() {
		if master.Size() == 0 || master.Calls("evalsha") == 0 {
			t.Errorf("master %d has %d keys and ran %d scripts", n, master.Size(), master.Calls("evalsha"))
		}
	}
}
