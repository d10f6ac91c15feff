//go:build redis

package serve

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// BenchmarkGateOnRedis is BenchmarkGate with its room on Redis.
func BenchmarkGateOnRedis(b *testing.B) {
	benchmarkGate(b, redistest.Start(b, redistest.Options{}).URL())
}
