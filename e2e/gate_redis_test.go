//go:build redis

package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Requests of a visitor inside ask Redis once in gate.recheck, however many they are: with those that
// tend the room, less than one call for each hundred, or on a slow machine a few in a second.
func TestVisitorsInsideDoNotLoadRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	s, front := newGate(t, shop(t).URL, "--capacity", "1", "--state", redis.URL())
	s.start()
	p := newPerson(t, front)
	until.True(t, "the visitor is inside", func() bool { return p.inShop("/") })
	const requests = 2_000
	before, began := redis.Calls("evalsha"), time.Now()
	for range requests {
		if a := p.get("/", "text/html"); a.status != http.StatusOK || string(a.body) != "the shop has /, with a pass: true" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	calls, took := redis.Calls("evalsha")-before, time.Since(began)
	if most := max(requests/100, 5*took.Seconds()); float64(calls) > most {
		t.Errorf("%d requests of a visitor inside cost Redis %d calls within %v, want at most %.0f", requests, calls, took, most)
	}
}
