package redistest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
)

// VerifyTestMain is leaks.Main for tests with clients of Redis. A cluster's client closes
// replaced connections after 5 s, even after it was closed, and sleeps before it asks for
// the masters again.
func VerifyTestMain(m *testing.M) {
	leaks.Main(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	)
}
