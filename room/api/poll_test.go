package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
)

func at(position int64) engine.Answer {
	return engine.Answer{Ticket: "t", ID: 7, State: room.Waiting, Position: position, NextPoll: 2 * time.Second}
}

func TestLongPoll(t *testing.T) {
	inside := engine.Answer{Ticket: "t", ID: 7, State: room.Inside, Pass: "p", NextPoll: time.Second}
	gone := &room.GoneError{Reason: room.Abandoned, ID: 7}
	for _, test := range []struct {
		name, query string
		ask         func(n int) (engine.Answer, error)
		status      int
		after       time.Duration
		asks        int
		want        string
	}{
		{"no wait", "", func(int) (engine.Answer, error) { return at(900), nil }, 200, 0, 1, `"position":900,`},
		{"nothing new", "?wait_ms=9000", func(int) (engine.Answer, error) { return at(900), nil }, 200, 9 * time.Second, 6, `"position":900,`},
		{"nothing new, as seen", "?wait_ms=3000&position=900", func(int) (engine.Answer, error) { return at(900), nil }, 200, 3 * time.Second, 3, `"position":900,`},
		{"new already", "?wait_ms=9000&position=901", func(int) (engine.Answer, error) { return at(900), nil }, 200, 0, 1, `"position":900,`},
		{"moves", "?wait_ms=9000", func(n int) (engine.Answer, error) { return at(900 - int64(n)/3), nil }, 200, 4 * time.Second, 3, `"position":899,`},
		{"near the front, asked more often", "?wait_ms=2000", func(int) (engine.Answer, error) { return at(2), nil }, 200, 2 * time.Second, 5, `"position":2,`},
		{"inside", "?wait_ms=9000&position=1", func(int) (engine.Answer, error) { return inside, nil }, 200, 0, 1, `"status":"inside"`},
		{"let in", "?wait_ms=9000", func(n int) (engine.Answer, error) {
			if n < 3 {
				return at(1), nil
			}
			return inside, nil
		}, 200, time.Second, 3, `"status":"inside"`},
		{"drawn", "?wait_ms=9000&position=0", func(n int) (engine.Answer, error) { return at(int64(n / 2 * 500)), nil }, 200, 2 * time.Second, 2, `"position":500,`},
		{"gone", "?wait_ms=9000", func(n int) (engine.Answer, error) {
			if n < 2 {
				return at(900), nil
			}
			return engine.Answer{}, gone
		}, 410, 2 * time.Second, 2, `"reason":"abandoned"`},
		{"away for a while", "?wait_ms=9000", func(n int) (engine.Answer, error) {
			if n == 2 || n == 3 {
				return engine.Answer{}, room.ErrUnavailable
			}
			return at(900 - int64(n)/4), nil
		}, 200, 6 * time.Second, 4, `"position":899,`},
		{"away from the start", "?wait_ms=9000", func(int) (engine.Answer, error) { return engine.Answer{}, room.ErrUnavailable }, 503, 0, 1, `"unavailable"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			engine := newFake()
			engine.onAsk = test.ask
			f := newFixture(t, engine)
			began := time.Now()
			a := f.do(test.status, "GET", "/v1/rooms/shop/visitors/me"+test.query, "", bearer, "Bearer t")
			if took := time.Since(began); took != test.after || engine.asks != test.asks {
				t.Errorf("%s: answered after %v and %d asks, want %v and %d", test.name, took, engine.asks, test.after, test.asks)
			}
			if !strings.Contains(a.Body.String(), test.want) {
				t.Errorf("%s: %s", test.name, a.Body)
			}
		})
	}
}

// A disconnected client, or a stopping server, ends the wait at once.
func TestLongPollEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake()
		e.onAsk = func(int) (engine.Answer, error) { return at(900), nil }
		f := newFixture(t, e)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("gone"))
		defer cancel()
		began := time.Now()
		r := httptest.NewRequest(http.MethodGet, "/v1/rooms/shop/visitors/me?wait_ms=30000", nil).WithContext(ctx)
		r.Header.Set(bearer, "Bearer t")
		f.send(200, r)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Waiters above MaxWaiters are answered at once.
func TestMostWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake()
		e.onAsk = func(int) (engine.Answer, error) { return at(900), nil }
		handler := api.New(e, nil)
		poll := func() {
			r := httptest.NewRequest(http.MethodGet, "/v1/rooms/shop/visitors/me?wait_ms=1000", nil)
			r.Header.Set(bearer, "Bearer t")
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range api.MaxWaiters {
			go poll()
		}
		synctest.Wait()
		began := time.Now()
		poll()
		if took := time.Since(began); took != 0 {
			t.Errorf("one more than may waited %v", took)
		}
		time.Sleep(2 * time.Second)
		began = time.Now()
		poll()
		if took := time.Since(began); took != time.Second {
			t.Errorf("after the others it waited %v", took)
		}
	})
}
