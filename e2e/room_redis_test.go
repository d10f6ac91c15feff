//go:build redis

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func init() {
	states["redis"] = func(t *testing.T) []string {
		return []string{"--state", redistest.Start(t, redistest.Options{}).URL()}
	}
}

// Two servers on one Redis share one queue, one capacity and one set of keys.
func TestTwoInstancesHaveOneLine(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	servers := []*server{startServer(t, "--state", redis.URL()), startServer(t, "--state", redis.URL())}
	servers[0].call("PUT", "/v1/rooms/shop", tellerOfTwo, http.StatusCreated, nil)
	until.True(t, "the other server sees the room", func() bool {
		a, err := servers[1].do("GET", "/v1/rooms/shop", "", nil)
		return err == nil && a.status == http.StatusOK
	})
	var visitors []visitor
	for n := range 10 {
		visitors = append(visitors, servers[n%2].enter("shop", "", http.StatusCreated))
	}
	for n, v := range visitors {
		if want := int64(max(0, n-1)); v.position() != want {
			t.Errorf("visitor %d is at %d, want %d", n, v.position(), want)
		}
		if other := servers[(n+1)%2].ask("shop", v.Ticket); other.ID != v.ID || other.position() != v.position() {
			t.Errorf("the other server has visitor %d at %d, want %d", n, other.position(), v.position())
		}
	}
	servers[1].me("DELETE", "shop", visitors[0].Ticket)
	if next := servers[0].ask("shop", visitors[2].Ticket); next.Status != "inside" {
		t.Errorf("after the first has left, the next is %+v", next)
	}
	for n, s := range servers {
		if v := s.room("shop"); v.Inside != 2 || v.Waiting != 7 || v.AdmittedTotal != 3 {
			t.Errorf("server %d has %+v", n, v)
		}
	}
	// A command to one server takes effect on the other.
	servers[0].call("POST", "/v1/rooms/shop/pause", "", http.StatusOK, nil)
	servers[1].me("DELETE", "shop", visitors[1].Ticket)
	if next := servers[1].ask("shop", visitors[3].Ticket); next.Status != "waiting" {
		t.Errorf("in a room that the other has paused: %+v", next)
	}
}

// While Redis does not answer, visitors are told to retry; afterwards everybody has the same place.
func TestRoomWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	s := startServer(t, "--state", redis.URL())
	s.call("PUT", "/v1/rooms/shop", tellerOfTwo, http.StatusCreated, nil)
	var last visitor
	for range 5 {
		last = s.enter("shop", "", http.StatusCreated)
	}
	redis.Pause()
	away := s.me("GET", "shop", last.Ticket)
	if away.status != http.StatusServiceUnavailable || away.header.Get("Retry-After") == "" {
		t.Errorf("while it is away: %d %v %s", away.status, away.header, away.body)
	}
	until.True(t, "the server is not ready", func() bool {
		a, err := s.do("GET", "/readyz", "", nil)
		return err == nil && a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), "room")
	})
	if a, err := s.do("GET", "/healthz", "", nil); err != nil || a.status != http.StatusOK {
		t.Errorf("the server is to live: %d %s, %v", a.status, a.body, err)
	}
	redis.Continue()
	until.True(t, "the server is ready again", func() bool {
		a, err := s.do("GET", "/readyz", "", nil)
		return err == nil && a.status == http.StatusOK
	})
	var now answer
	until.True(t, "visitors are answered again", func() bool { // over each of the server's connections
		now = s.me("GET", "shop", last.Ticket)
		return now.status != http.StatusServiceUnavailable
	})
	var place visitor
	if err := now.json(&place); err != nil || place.ID != last.ID || place.position() != 3 {
		t.Errorf("afterwards: %s, %v, want position 3", now.body, err)
	}
}

// A gate beside a server on one Redis: the server's topic has each event of the gate's visitors once, over
// kills of both, and of a time in which the server was away.
func TestEventsOfAGateAreInTheTopic(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	s := startServer(t, "--state", redis.URL(), "--topic-partitions", "3")
	s.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`, http.StatusCreated, nil)
	s.kill()
	gate, _ := newGate(t, "http://127.0.0.1:1", "--state", redis.URL())
	const count = 100
	for round := range 2 {
		gate.start()
		for range count {
			v := gate.enter("shop", "", http.StatusCreated)
			gate.me("DELETE", "shop", v.Ticket)
		}
		gate.kill()
		s.start()
		want := 3 * count * (round + 1)
		until.True(t, "all events are in the topic", func() bool { return len(readTopic(t, s.kafka, "sluice.room.events")) >= want })
		s.kill()
	}
	s.start()
	entersAndLeaves(t, s.kafka, 2*count)
}
