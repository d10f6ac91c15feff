//go:build redis && long

package redisstore

import (
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestConformanceOnACluster runs the whole suite on a cluster; TestACluster is the short run.
func TestConformanceOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	h := &harness{crew: newCrew(t), url: cluster.URL(), shards: 5, of: map[bulk.Store]Options{}}
	storetest.Run(t, h.factory())
}
