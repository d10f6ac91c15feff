//go:build redis && long && !race

package redisstore

import (
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestConformanceOnACluster runs the whole suite on a cluster; TestACluster is the short run, and that
// with the race detector.
func TestConformanceOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	h := &harness{crew: newCrew(t), url: cluster.URL(), shards: 3, of: map[bulk.Store]Options{}}
	storetest.Run(t, h.factory())
}
