package bulktest

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

func jobOf(tenant string, index int64) *bulk.Job {
	return &bulk.Job{Spec: &bulk.Spec{ID: "act-" + tenant, Tenant: tenant, Type: "sim"}, Index: index, Payload: []byte("1"), Attempt: 1}
}

// burst sends n attempts at once and returns how many of them were throttled, and the longest
// delay that the target asked for.
func burst(t *testing.T, target *Target, tenant string, n int) (throttled int, wait time.Duration) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			result, err := target.Handle(t.Context(), jobOf(tenant, int64(i)))
			mu.Lock()
			defer mu.Unlock()
			var turnedBack *bulk.ThrottledError
			switch {
			case errors.As(err, &turnedBack):
				throttled++
				wait = max(wait, turnedBack.RetryAfter)
			case err != nil || string(result) != "1":
				t.Errorf("Handle = %q, %v", result, err)
			}
		})
	}
	group.Wait()
	return throttled, wait
}

func TestTargetCountsByTenantAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := NewTarget(TargetOptions{Rate: 10, Latency: 300 * time.Millisecond, TellRetryAfter: true})
		start := time.Now()
		// The limit is 10 for all tenants: after a, nothing is left for b in the same window.
		if throttled, wait := burst(t, target, "a", 15); throttled != 5 || wait != time.Second {
			t.Fatalf("a: %d throttled, wait %s", throttled, wait)
		}
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Fatalf("the burst took %s", took)
		}
		if throttled, wait := burst(t, target, "b", 2); throttled != 2 || wait != 700*time.Millisecond {
			t.Fatalf("b: %d throttled, wait %s", throttled, wait)
		}
		// These attempts begin in the second window and end in the third.
		time.Sleep(1500 * time.Millisecond)
		if throttled, _ := burst(t, target, "b", 3); throttled != 0 {
			t.Fatalf("b, next window: %d throttled", throttled)
		}
		want := []TargetWindow{
			{start, map[string]TargetCounts{"a": {15, 5, 10}, "b": {2, 2, 0}}},
			{start.Add(time.Second), map[string]TargetCounts{"b": {3, 0, 3}}},
		}
		got := target.Windows()
		if len(got) != 2 || !slices.EqualFunc(got, want, func(a, b TargetWindow) bool {
			return a.Begins.Equal(b.Begins) && maps.Equal(a.Tenants, b.Tenants)
		}) {
			t.Fatalf("Windows = %v; want %v", got, want)
		}
		if got, want := target.Tenants(), map[string]TargetCounts{"a": {15, 5, 10}, "b": {5, 2, 3}}; !maps.Equal(got, want) {
			t.Fatalf("Tenants = %v; want %v", got, want)
		}
		if got, want := target.Total(), (TargetCounts{20, 7, 13}); got != want {
			t.Fatalf("Total = %v; want %v", got, want)
		}
	})
}

func TestTargetLimitsEachTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := NewTarget(TargetOptions{Rate: 4, Key: ByTenant})
		for _, tenant := range []string{"a", "b"} {
			if throttled, wait := burst(t, target, tenant, 6); throttled != 2 || wait != 0 {
				t.Fatalf("%s: %d throttled, wait %s", tenant, throttled, wait)
			}
		}
	})
}

func TestTargetWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if throttled, _ := burst(t, NewTarget(TargetOptions{}), "a", 500); throttled != 0 {
			t.Fatalf("%d throttled", throttled)
		}
	})
}

func TestTargetWindowsMovedByPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const phase = 250 * time.Millisecond
		target := NewTarget(TargetOptions{Rate: 1, Phase: phase, TellRetryAfter: true})
		start := time.Now()
		burst(t, target, "a", 1)
		if throttled, wait := burst(t, target, "a", 1); throttled != 1 || wait != phase {
			t.Fatalf("%d throttled, wait %s", throttled, wait)
		}
		time.Sleep(phase)
		if throttled, _ := burst(t, target, "a", 1); throttled != 0 {
			t.Fatal("the window did not begin at the phase")
		}
		if windows := target.Windows(); !windows[0].Begins.Equal(start.Add(phase-time.Second)) || !windows[1].Begins.Equal(start.Add(phase)) {
			t.Fatalf("Windows = %v", windows)
		}
	})
}

func TestTargetCountsAJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := NewTarget(TargetOptions{})
		burst(t, target, "a", 3)
		burst(t, target, "a", 2) // the first two jobs again
		if got, total := target.Distinct(), target.Total(); got != 3 || total.Succeeded != 5 {
			t.Fatalf("Distinct = %d, Total = %v", got, total)
		}
	})
}

func TestTargetIsLeftWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := NewTarget(TargetOptions{Latency: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := target.Handle(ctx, jobOf("a", 0))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Fatalf("Handle = %v after %s", err, took)
		}
		if got := target.Total(); got != (TargetCounts{Attempts: 1}) || target.Distinct() != 0 {
			t.Fatalf("Total = %v, Distinct = %d", got, target.Distinct())
		}
	})
}

// TestTargetIsExact checks that, for any pattern of attempts, each key gets exactly its rate
// in each window, and the counts add up.
func TestTargetIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 4).Draw(t, "rate")
		window := time.Duration(rapid.IntRange(100, 1000).Draw(t, "window_ms")) * time.Millisecond
		target := NewTarget(TargetOptions{
			Rate: rate, Window: window, Key: ByTenant,
			Phase: time.Duration(rapid.IntRange(0, 99).Draw(t, "phase_ms")) * time.Millisecond,
		})
		now := time.Unix(1_700_000_000, 0)
		arrivals := rapid.SliceOfN(rapid.IntRange(0, 400), 1, 80).Draw(t, "gaps_ms")
		for i, gap := range arrivals {
			now = now.Add(time.Duration(gap) * time.Millisecond)
			_, _ = target.arrive(jobOf([]string{"a", "b"}[i%2], int64(i)), now)
		}
		for _, window := range target.Windows() {
			for tenant, got := range window.Tenants {
				if through := got.Attempts - got.Throttled; through != min(rate, got.Attempts) {
					t.Fatalf("window %s, tenant %s: %d of %d let through at a rate of %d", window.Begins, tenant, through, got.Attempts, rate)
				}
			}
		}
		if got := target.Total().Attempts; got != len(arrivals) {
			t.Fatalf("%d attempts counted of %d", got, len(arrivals))
		}
	})
}

func TestTargetChangesItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := NewTarget(TargetOptions{Rate: 10})
		burst(t, target, "a", 8)
		target.SetRate(5)
		if throttled, _ := burst(t, target, "a", 1); throttled != 1 {
			t.Error("above the new rate it was let through")
		}
		target.SetRate(9)
		if throttled, _ := burst(t, target, "a", 2); throttled != 1 {
			t.Errorf("%d of two throttled, want one", throttled)
		}
	})
}

// TestTargetOverHTTP checks the target's HTTP answers, without a connection.
func TestTargetOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := NewTarget(TargetOptions{Rate: 1, Key: ByTenant, TellRetryAfter: true})
		time.Sleep(100 * time.Millisecond)
		post := func(body string, header ...string) *httptest.ResponseRecorder {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
			for i := 0; i < len(header); i += 2 {
				request.Header.Set(header[i], header[i+1])
			}
			w := httptest.NewRecorder()
			target.ServeHTTP(w, request)
			return w
		}
		webhook := []string{"webhook-id", "a-7", "Sluice-Tenant", "a%20b", "Content-Type", "application/json"}
		response := post(`{"n":1}`, webhook...)
		if response.Code != http.StatusOK || response.Body.String() != `{"n":1}` || response.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %s", response.Code, response.Body)
		}
		if response := post("1", webhook...); response.Code != http.StatusTooManyRequests || response.Header().Get("Retry-After") != "1" {
			t.Errorf("above the rate: %d, Retry-After %s", response.Code, response.Header().Get("Retry-After"))
		}
		time.Sleep(time.Second)
		post("1", webhook...) // the same job
		post("1")
		time.Sleep(time.Second)
		post("2")
		if n, total := target.Distinct(), target.Total(); n != 3 || total != (TargetCounts{Attempts: 5, Throttled: 1, Succeeded: 4}) {
			t.Errorf("%d jobs, %+v", n, total)
		}
		if by := target.Tenants()["a b"]; by != (TargetCounts{Attempts: 3, Throttled: 1, Succeeded: 2}) {
			t.Errorf("of the tenant: %+v", by)
		}
		for want, response := range map[int]*httptest.ResponseRecorder{
			http.StatusRequestEntityTooLarge: post(strings.Repeat("x", bulk.MaxPayloadBytes+1)),
			http.StatusBadRequest:            post("1", "webhook-id", "a"),
		} {
			if response.Code != want {
				t.Errorf("%d, want %d", response.Code, want)
			}
		}
		if response := post("1", "Sluice-Tenant", "%"); response.Code != http.StatusBadRequest {
			t.Errorf("a tenant that is not encoded: %d", response.Code)
		}
	})
}
