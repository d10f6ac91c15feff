//go:build redis

package e2e

import (
	"net/http"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Requests of a visitor inside ask Redis once in gate.recheck, however many they are: less than one
// call for each hundred, with those that tend the room.
func TestVisitorsInsideDoNotLoadRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	s, front := newGate(t, shop(t).URL, "--capacity", "1", "--state", redis.URL())
	s.start()
	p := newPerson(t, front)
	until.True(t, "the visitor is inside", func() bool { return p.inShop("/") })
	const requests = 5_000
	before := redis.Calls("evalsha")
	for range requests {
		if a := p.get("/", "text/html"); a.status != http.StatusOK || string(a.body) != "the shop has /, with a pass: true" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if calls := redis.Calls("evalsha") - before; calls > requests/100 {
		t.Errorf("%d requests of a visitor inside cost Redis %d calls", requests, calls)
	}
}
