package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The embedded server is killed repeatedly while people join. After the last start each has the
// place that it was told: the numbers are consecutive and unique.
func TestRoomKeepsJoinsOverKills(t *testing.T) {
	t.Parallel()
	const capacity = 3
	kills, joins := 4, 400
	if long() {
		kills, joins = 25, 3_000
	}
	s := newServer(t)
	s.start()
	s.call("PUT", "/v1/rooms/shop", fmt.Sprintf(`{"mode":"teller","capacity":%d,"pass_ttl_ms":3600000,"abandon_after_ms":3600000}`, capacity), http.StatusCreated, nil)
	var mu sync.Mutex
	var told []visitor
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			conn := &keptConn{addr: s.addr}
			defer conn.close()
			join(t, conn, stop, func(v visitor) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, v)
			})
		})
	}
	end := sync.OnceFunc(func() {
		close(stop)
		group.Wait()
	})
	t.Cleanup(end)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(told)
	}
	for range kills {
		before := count()
		until.True(t, "people join", func() bool { return count() >= before+joins })
		<-time.After(rand.N(100 * time.Millisecond))
		s.kill()
		s.start()
	}
	end()
	checkJoins(t, s, told, capacity)
	t.Logf("%d joins with an answer, over %d kills", len(told), kills)
}

// checkJoins checks that the visitors have the places that they were told, behind as many as were
// let in.
func checkJoins(t *testing.T, s *server, told []visitor, capacity int64) {
	t.Helper()
	has := map[int64]bool{}
	for _, v := range told {
		if has[v.ID] {
			t.Errorf("two are visitor %d", v.ID)
		}
		has[v.ID] = true
	}
	view := s.room("shop")
	if all := view.Waiting + view.Inside; all < int64(len(told)) {
		t.Errorf("%d are in the room, and %d were told a place", all, len(told))
	}
	s.each(len(told), func(n int) {
		now, want := s.ask("shop", told[n].Ticket), max(0, told[n].ID-capacity)
		if now.ID != told[n].ID || now.position() != want {
			t.Errorf("visitor %d is %s, as %d at %d, want %d", told[n].ID, now.Status, now.ID, now.position(), want)
		}
	})
}

// join enters a room repeatedly.
func join(t *testing.T, conn *keptConn, stop <-chan struct{}, told func(visitor)) {
	for {
		a, err := conn.do("POST", "/v1/rooms/shop/visitors", "none", "{}")
		pause := time.Duration(0)
		var v visitor
		switch {
		case err != nil: // the server is starting
			pause = 5 * time.Millisecond
		case a.status != http.StatusCreated:
			t.Errorf("join: %d %s", a.status, a.body)
			return
		default:
			if err := json.Unmarshal(a.body, &v); err != nil {
				t.Errorf("join: %s: %v", a.body, err)
				return
			}
			told(v)
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
	}
}
