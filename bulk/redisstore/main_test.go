package redisstore

import (
	flags "flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/rapidtest"
)

// TestMain has properties checked less often without SLUICE_LONG: each check makes
// many exchanges with a real server.
func TestMain(m *testing.M) {
	flags.Parse()
	rapidtest.Checks(25, 100)
	// A client of a cluster closes connections that it has replaced after 5 s, also after it
	// was closed, and sleeps before it asks for the masters again.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	)
}
