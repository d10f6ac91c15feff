//go:build redis

package redisstore

import (
	flags "flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

// TestMain checks properties less often without SLUICE_LONG: each check makes many exchanges
// with a real server.
func TestMain(m *testing.M) {
	flags.Parse()
	// Tests wait for Redis more than they work. The flag is known, so Set cannot fail.
	_ = flags.Set("test.parallel", "4")
	rapidtest.Checks(25, 60)
	// A cluster client closes replaced connections after 5 s, even after it was closed, and
	// sleeps before it asks for the masters again.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	)
}
