//go:build redis

package redisstore

import (
	flags "flag"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestMain checks properties less often without SLUICE_LONG: each check makes many exchanges
// with a real server.
func TestMain(m *testing.M) {
	flags.Parse()
	// Tests wait for Redis more than they work. The flag is known, so Set cannot fail.
	_ = flags.Set("test.parallel", "4")
	rapidtest.Checks(rapidtest.WithRace(15), 60)
	redistest.VerifyTestMain(m)
}
