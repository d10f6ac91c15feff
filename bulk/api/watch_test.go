package api_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.create("a")
		f.upload("a", "1")
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			f.handler.ServeHTTP(w, f.request("GET", "/v1/actions/a/watch", ""))
			close(done)
		}()
		synctest.Wait()
		f.do(200, "POST", "/v1/actions/a/seal", `{"total":1}`)
		time.Sleep(31 * time.Second)
		f.do(200, "POST", "/v1/actions/a/cancel", "")
		<-done
		parts := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
		if len(parts) != 5 || w.Header().Get("Content-Type") != "text/event-stream" || !w.Flushed {
			t.Fatal(w.Header(), w.Body)
		}
		for i, want := range []string{`"status":"CREATED"`, `"status":"DISPATCHED"`, ": heartbeat", ": heartbeat", `"status":"CANCELED"`} {
			if !strings.Contains(parts[i], want) || strings.HasPrefix(parts[i], "data: {") != strings.HasPrefix(want, `"`) {
				t.Errorf("part %d is %s; want %s", i, parts[i], want)
			}
		}
		if got := strings.TrimSpace(f.do(200, "GET", "/v1/actions/a", "").Body.String()); parts[4] != "data: "+got {
			t.Fatalf("an event is not the action:\n%s\n%s", parts[4], got)
		}
	})
}

// TestWatchEnds: with its request, with its client, and with a failure.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.create("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f.handler.ServeHTTP(httptest.NewRecorder(), f.request("GET", "/v1/actions/a/watch", "").WithContext(ctx))
		if ctx.Err() == nil || f.log.String() != "" {
			t.Fatal(f.log)
		}
		f.handler.ServeHTTP(&goneClient{httptest.NewRecorder()}, f.request("GET", "/v1/actions/a/watch", ""))
		f.engine.fail["Watch"] = bulk.ErrBroken
		f.handler.ServeHTTP(httptest.NewRecorder(), f.request("GET", "/v1/actions/a/watch", ""))
		if !strings.Contains(f.log.String(), bulk.ErrBroken.Error()) {
			t.Fatal(f.log)
		}
	})
}

type goneClient struct{ *httptest.ResponseRecorder }

func (*goneClient) Write([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.create("a")
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			go f.handler.ServeHTTP(httptest.NewRecorder(), f.request("GET", "/v1/actions/a/watch", "").WithContext(ctx))
		}
		synctest.Wait()
		if a := f.do(503, "GET", "/v1/actions/a/watch", ""); a.Header().Get("Retry-After") == "" {
			t.Fatal(a.Header())
		}
		cancel()
		synctest.Wait()
		f.do(200, "POST", "/v1/actions/a/cancel", "")
		f.handler.ServeHTTP(httptest.NewRecorder(), f.request("GET", "/v1/actions/a/watch", ""))
	})
}
