//go:build redis && long

package redisstore_test

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room/storetest"
)

// TestConformance runs the whole suite on a server. TestConformanceOnACluster is the short run: a cluster
// refuses more than a server does.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(redistest.Start(t, redistest.Options{})))
}
