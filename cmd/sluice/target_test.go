package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// ask sends one webhook to the target without a socket.
func ask(t *target, id, body string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	request.Header.Set(headerWebhookID, id)
	answer := httptest.NewRecorder()
	t.ServeHTTP(answer, request)
	return answer
}

// idWith finds an id whose fate is as wanted.
func idWith(t *testing.T, options targetOptions, wanted func(targetFate) bool) string {
	t.Helper()
	for i := range 100_000 {
		if id := fmt.Sprintf("job-%d", i); wanted(fateOf(&options, id)) {
			return id
		}
	}
	t.Fatal("no id has that fate")
	return ""
}

func TestTargetThrottlesAboveItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTarget(targetOptions{Rate: 10, Window: 5 * time.Second})
		burst := func(from, n int) (statuses map[int]int, retryAfter string) {
			var mu sync.Mutex
			var group sync.WaitGroup
			statuses = map[int]int{}
			for i := range n {
				group.Go(func() {
					answer := ask(target, fmt.Sprintf("job-%d", from+i), "1")
					mu.Lock()
					defer mu.Unlock()
					statuses[answer.Code]++
					if answer.Code == http.StatusTooManyRequests {
						retryAfter = answer.Header().Get("Retry-After")
					}
				})
			}
			group.Wait()
			return statuses, retryAfter
		}
		start := time.Now()
		if statuses, retryAfter := burst(0, 25); statuses[200] != 10 || statuses[429] != 15 || retryAfter != "5" {
			t.Fatalf("first burst: %v, Retry-After %s", statuses, retryAfter)
		}
		time.Sleep(time.Until(start.Add(3500 * time.Millisecond)))
		if statuses, retryAfter := burst(100, 3); statuses[429] != 3 || retryAfter != "2" {
			t.Fatalf("same window: %v, Retry-After %s", statuses, retryAfter)
		}
		time.Sleep(time.Until(start.Add(5 * time.Second)))
		if statuses, _ := burst(200, 12); statuses[200] != 10 || statuses[429] != 2 {
			t.Fatalf("next window: %v", statuses)
		}
		want := targetStats{Requests: 40, Accepted: 20, Throttled: 20, Distinct: 20}
		if got := target.Stats(); got != want {
			t.Fatalf("Stats = %+v; want %+v", got, want)
		}
	})
}

// In whatever pattern requests arrive, a window lets exactly its rate through,
// and none is turned away before.
func TestTargetWindowIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 5).Draw(t, "rate")
		length := time.Duration(rapid.IntRange(1, 2000).Draw(t, "window_ms")) * time.Millisecond
		window := targetWindow{rate: rate, length: length}
		now := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9-1).Draw(t, "start_ns"))
		admitted := map[time.Time]int{}
		for _, gap := range rapid.SliceOfN(rapid.IntRange(0, 700), 1, 100).Draw(t, "gaps_ms") {
			now = now.Add(time.Duration(gap) * time.Millisecond)
			begins := now.Truncate(length)
			wait := window.admit(now)
			if full := admitted[begins] == rate; full != (wait > 0) {
				t.Fatalf("%d of %d admitted, then wait %s", admitted[begins], rate, wait)
			}
			if wait == 0 {
				admitted[begins]++
			} else if end := now.Add(wait); !end.Equal(begins.Add(length)) {
				t.Fatalf("wait %s ends at %s; the window ends at %s", wait, end, begins.Add(length))
			}
		}
	})
}

func TestTargetFates(t *testing.T) {
	options := targetOptions{Seed: 42, SlowShare: 0.3, FlakyShare: 0.3, RejectShare: 0.2, SlowFor: time.Second}
	usual := idWith(t, options, func(f targetFate) bool { return !f.slow && !f.flaky && !f.rejected })
	slow := idWith(t, options, func(f targetFate) bool { return f.slow && !f.flaky && !f.rejected })
	flaky := idWith(t, options, func(f targetFate) bool { return !f.slow && f.flaky })
	rejected := idWith(t, options, func(f targetFate) bool { return !f.slow && f.rejected })
	for _, test := range []struct {
		name, id string
		statuses []int
		slow     bool
		want     targetStats
	}{
		{"usual", usual, []int{200, 200, 200}, false, targetStats{Requests: 3, Accepted: 3, Distinct: 1}},
		{"slow", slow, []int{200, 200}, true, targetStats{Requests: 2, Accepted: 2, Slow: 2, Distinct: 1}},
		{"flaky", flaky, []int{500, 200, 200}, false, targetStats{Requests: 3, Accepted: 2, Failed: 1, Distinct: 1}},
		{"rejected", rejected, []int{422, 422}, false, targetStats{Requests: 2, Rejected: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := newTarget(options)
				for i, want := range test.statuses {
					start := time.Now()
					answer := ask(target, test.id, `{"latitude":"40.922326"}`)
					took := time.Since(start)
					if answer.Code != want {
						t.Fatalf("request %d: %d; want %d", i, answer.Code, want)
					}
					if want == 200 && answer.Body.String() != `{"latitude":"40.922326"}` {
						t.Fatalf("body = %q", answer.Body)
					}
					if test.slow && took != time.Second || !test.slow && (took < time.Millisecond || took > 3*time.Millisecond) {
						t.Fatalf("request %d took %s", i, took)
					}
				}
				if got := target.Stats(); got != test.want {
					t.Fatalf("Stats = %+v; want %+v", got, test.want)
				}
			})
		})
	}
}

// The shares hold over many ids, and follow from seed and id alone.
func TestTargetShares(t *testing.T) {
	const n = 200_000
	options, other := demoTargetOptions(0), demoTargetOptions(0)
	other.Seed++
	var slow, flaky, rejected, same int
	for i := range n {
		id := bulk.JobID("demo-PR", int64(i))
		fate := fateOf(&options, id)
		if again := fateOf(&options, id); again != fate {
			t.Fatalf("%s: %+v, then %+v", id, fate, again)
		}
		count := func(counter *int, is bool) {
			if is {
				*counter++
			}
		}
		count(&slow, fate.slow)
		count(&flaky, fate.flaky)
		count(&rejected, fate.rejected)
		count(&same, fate.slow && fateOf(&other, id).slow)
	}
	for name, test := range map[string]struct {
		got  int
		want float64
	}{
		"slow": {slow, 0.02}, "flaky": {flaky, 0.01}, "rejected": {rejected, 0.001}, "slow with both seeds": {same, 0.0004},
	} {
		// Five standard deviations: the ids are fixed, so this holds always or never.
		if off := math.Abs(float64(test.got) - n*test.want); off > 5*math.Sqrt(n*test.want) {
			t.Errorf("%s: %d of %d; want about %g", name, test.got, n, n*test.want)
		}
	}
}

func TestTargetRefusesWhatIsNoWebhook(t *testing.T) {
	for name, test := range map[string]struct {
		method, id string
		body       io.Reader
		want       int
	}{
		"GET":       {http.MethodGet, "job-1", nil, 405},
		"no id":     {http.MethodPost, "", strings.NewReader("1"), 400},
		"too large": {http.MethodPost, "job-1", strings.NewReader(strings.Repeat("1", maxTargetBodyBytes+1)), 413},
		"broken":    {http.MethodPost, "job-1", io.MultiReader(strings.NewReader("1"), brokenReader{}), 400},
	} {
		target := newTarget(targetOptions{Rate: 1})
		request := httptest.NewRequest(test.method, "/", test.body)
		request.Header.Set(headerWebhookID, test.id)
		answer := httptest.NewRecorder()
		target.ServeHTTP(answer, request)
		if answer.Code != test.want {
			t.Errorf("%s: %d; want %d", name, answer.Code, test.want)
		}
		if got := target.Stats(); got != (targetStats{Requests: 1, Malformed: 1}) {
			t.Errorf("%s: Stats = %+v", name, got)
		}
		if answer := ask(target, "job-1", "1"); answer.Code != 200 {
			t.Errorf("%s: it used up the rate", name)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestTargetCountsAnIDOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTarget(targetOptions{})
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() { ask(target, fmt.Sprintf("job-%d", i%2), "1") })
		}
		group.Wait()
		if got := target.Stats(); got.Accepted != 100 || got.Distinct != 2 {
			t.Fatalf("Stats = %+v", got)
		}
	})
}

func TestTargetNoticesThatTheClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTarget(targetOptions{SlowShare: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("1"))
		request.Header.Set(headerWebhookID, "job-1")
		target.ServeHTTP(httptest.NewRecorder(), request)
		if got := target.Stats(); got != (targetStats{Requests: 1, Abandoned: 1, Slow: 1}) {
			t.Fatalf("Stats = %+v", got)
		}
	})
}

func TestTargetForgetsTheOldestIDs(t *testing.T) {
	ids := targetIDs{max: 100, recent: map[uint64]targetMark{}}
	for id := range uint64(1000) {
		if !ids.mark(id, markDone) {
			t.Fatalf("id %d is not new", id)
		}
		// Four marks for each id: with fewer than 100 since, an id is surely known.
		for _, back := range []uint64{0, 8, 16, 24} {
			if back <= id && ids.mark(id-back, markDone) {
				t.Fatalf("id %d is forgotten after %d more", id-back, back)
			}
		}
		if held := len(ids.recent) + len(ids.older); held > 200 {
			t.Fatalf("%d ids are held", held)
		}
	}
	if !ids.mark(0, markDone) || !ids.mark(0, markFailed) || ids.mark(0, markFailed) {
		t.Fatal("an id that was forgotten is not new, or its marks are one")
	}
}
