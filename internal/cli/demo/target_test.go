package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/leaks"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
)

// ask sends one webhook to the target without a socket.
func ask(ctx context.Context, t *target, id, body string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	request.Header.Set(headerWebhookID, id)
	answer := httptest.NewRecorder()
	t.ServeHTTP(answer, request)
	return answer
}

// idWith finds an id whose fate satisfies wanted.
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
	synctest.Test(t, func(t *testing.T) { // bubbles begin with a full second
		target := newTarget(targetOptions{Rate: 10})
		burst := func(from, n int) (statuses map[int]int, retryAfter string) {
			var mu sync.Mutex
			var group sync.WaitGroup
			statuses = map[int]int{}
			for i := range n {
				group.Go(func() {
					answer := ask(t.Context(), target, fmt.Sprintf("job-%d", from+i), "1")
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
		if statuses, retryAfter := burst(0, 25); statuses[200] != 10 || statuses[429] != 15 || retryAfter != "1" {
			t.Fatalf("first burst: %v, Retry-After %s", statuses, retryAfter)
		}
		time.Sleep(time.Until(start.Add(700 * time.Millisecond)))
		if statuses, retryAfter := burst(100, 3); statuses[429] != 3 || retryAfter != "1" {
			t.Fatalf("same second: %v, Retry-After %s", statuses, retryAfter)
		}
		time.Sleep(time.Until(start.Add(time.Second)))
		if statuses, _ := burst(200, 12); statuses[200] != 10 || statuses[429] != 2 {
			t.Fatalf("next second: %v", statuses)
		}
		if got := target.Distinct(); got != 20 {
			t.Fatalf("%d ids were executed, want 20", got)
		}
	})
}

// A second admits exactly the rate whatever the pattern of requests, and refuses none before.
func TestTargetRateIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 5).Draw(t, "rate")
		target := newTarget(targetOptions{Rate: rate})
		now := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9-1).Draw(t, "start_ns"))
		admitted := map[time.Time]int{}
		for _, gap := range rapid.SliceOfN(rapid.IntRange(0, 700), 1, 100).Draw(t, "gaps_ms") {
			now = now.Add(time.Duration(gap) * time.Millisecond)
			begins := now.Truncate(time.Second)
			wait := target.admit(now)
			if full := admitted[begins] == rate; full != (wait > 0) {
				t.Fatalf("%d of %d admitted, then wait %s", admitted[begins], rate, wait)
			}
			if wait == 0 {
				admitted[begins]++
			} else if end := now.Add(wait); !end.Equal(begins.Add(time.Second)) {
				t.Fatalf("wait %s ends at %s; the second began at %s", wait, end, begins)
			}
		}
	})
}

func TestTargetFates(t *testing.T) {
	options := targetOptions{Seed: 42, SlowShare: 0.3, FlakyShare: 0.3, RejectShare: 0.2}
	slow := func(f targetFate) bool { return f.takes == slowTime }
	for _, test := range []struct {
		name     string
		wanted   func(targetFate) bool
		statuses []int
		distinct int64
	}{
		{"usual", func(f targetFate) bool { return !slow(f) && !f.flaky && !f.rejected }, []int{200, 200, 200}, 1},
		{"slow", func(f targetFate) bool { return slow(f) && !f.flaky && !f.rejected }, []int{200, 200}, 1},
		{"flaky", func(f targetFate) bool { return !slow(f) && f.flaky }, []int{500, 200, 200}, 1},
		{"rejected", func(f targetFate) bool { return !slow(f) && f.rejected }, []int{422, 422}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target, id := newTarget(options), idWith(t, options, test.wanted)
				for i, want := range test.statuses {
					start := time.Now()
					answer := ask(t.Context(), target, id, `{"latitude":"40.922326"}`)
					took := time.Since(start)
					if answer.Code != want {
						t.Fatalf("request %d: %d; want %d", i, answer.Code, want)
					}
					if want == 200 && answer.Body.String() != `{"latitude":"40.922326"}` {
						t.Fatalf("body = %q", answer.Body)
					}
					if isSlow := test.name == "slow"; isSlow && took != slowTime || !isSlow && (took < time.Millisecond || took > 3*time.Millisecond) {
						t.Fatalf("request %d took %s", i, took)
					}
				}
				if got := target.Distinct(); got != test.distinct {
					t.Fatalf("%d ids were executed, want %d", got, test.distinct)
				}
			})
		})
	}
}

// The shares hold over many ids, and depend on the seed and the id alone.
func TestTargetShares(t *testing.T) {
	const n = 200_000
	options, other := demoTargetOptions(0), demoTargetOptions(0)
	other.Seed++
	got := map[string]int{}
	for i := range n {
		id := bulk.JobID("demo-PR", int64(i))
		fate := fateOf(&options, id)
		if again := fateOf(&options, id); again != fate {
			t.Fatalf("%s: %+v, then %+v", id, fate, again)
		}
		for name, is := range map[string]bool{
			"slow": fate.takes == slowTime, "flaky": fate.flaky, "rejected": fate.rejected,
			"slow with both seeds": fate.takes == slowTime && fateOf(&other, id).takes == slowTime,
		} {
			if is {
				got[name]++
			}
		}
	}
	for name, want := range map[string]float64{"slow": 0.02, "flaky": 0.01, "rejected": 0.001, "slow with both seeds": 0.0004} {
		// Five standard deviations: the ids are fixed, so this holds always or never.
		if off := math.Abs(float64(got[name]) - n*want); off > 5*math.Sqrt(n*want) {
			t.Errorf("%s: %d of %d; want about %g", name, got[name], n, n*want)
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
		if answer.Code != test.want || target.Distinct() != 0 {
			t.Errorf("%s: %d; want %d", name, answer.Code, test.want)
		}
		if answer := ask(t.Context(), target, "job-1", "1"); answer.Code != 200 {
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
			group.Go(func() { ask(t.Context(), target, fmt.Sprintf("job-%d", i%2), "1") })
		}
		group.Wait()
		if got := target.Distinct(); got != 2 {
			t.Fatalf("%d ids were executed, want 2", got)
		}
	})
}

// A request whose client left is not executed.
func TestTargetNoticesThatTheClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTarget(targetOptions{SlowShare: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if answer := ask(ctx, target, "job-1", "1"); answer.Body.Len() > 0 || target.Distinct() != 0 {
			t.Fatalf("answered %q, %d ids were executed", answer.Body, target.Distinct())
		}
	})
}

func TestTargetBoundsItsIDs(t *testing.T) {
	target := newTarget(targetOptions{})
	for id := range uint64(mostTargetIDs + 1) {
		if !target.mark(id, markFailed) || !target.mark(id, markDone) || target.mark(id, markDone) {
			t.Fatalf("the marks of id %d", id)
		}
		if len(target.marks) > mostTargetIDs {
			t.Fatalf("%d ids are held", len(target.marks))
		}
	}
	if got := target.Distinct(); got != mostTargetIDs+1 {
		t.Fatalf("%d ids were executed", got)
	}
}

func targetJob(url string, n int64) *bulk.Job {
	return &bulk.Job{
		Spec:    &bulk.Spec{ID: "demo-PR", Tenant: "PR", Type: bulk.WebhookType, Target: &bulk.Target{Name: "local", URL: url}},
		Index:   n,
		Payload: []byte(`{"n":"` + strconv.FormatInt(n, 10) + `"}`),
		Attempt: 1,
	}
}

func TestTargetStartAndStop(t *testing.T) {
	leaks.Check(t)
	target, err := startDemoTarget(100)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := webhook.New(webhook.Options{Allow: targetNetworks})
	if err != nil {
		t.Fatal(err)
	}
	result, err := handler.Handle(t.Context(), targetJob(target.URL, 1))
	if err != nil || string(result) != `{"n":"1"}` || target.Done() != 1 {
		t.Fatalf("Handle = %q, %v", result, err)
	}
	handler.Close()
	if err := target.Stop(t.Context()); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if _, err := handler.Handle(t.Context(), targetJob(target.URL, 2)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("Handle after Stop = %v", err)
	}
}

// Every job passes through the faults to the outcome that is foretold for it.
func TestTargetThroughWebhooks(t *testing.T) {
	const jobs, workers = 600, 32
	options := targetOptions{Rate: 400, SlowShare: 0.02, FlakyShare: 0.05, RejectShare: 0.05}
	target := newTarget(options)
	server := httptest.NewServer(target)
	defer server.Close()
	handler, err := webhook.New(webhook.Options{Allow: targetNetworks})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	var next, retried, failed, wrong atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for n := next.Add(1); n <= jobs; n = next.Add(1) {
				job := targetJob(server.URL, n)
				for done := false; !done; {
					result, err := handler.Handle(t.Context(), job)
					var turnedBack *bulk.ThrottledError
					switch {
					case err == nil:
						done = true
						if string(result) != string(job.Payload) {
							wrong.Add(1)
						}
					case errors.As(err, &turnedBack):
						if turnedBack.RetryAfter != time.Second {
							wrong.Add(1)
						}
					case errors.Is(err, bulk.SkipRetry):
						done = true
						failed.Add(1)
					default:
						retried.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	var flaky, rejected int64
	for n := range int64(jobs) {
		switch fate := fateOf(&options, targetJob(server.URL, n+1).ID()); {
		case fate.flaky:
			flaky++
		case fate.rejected:
			rejected++
		}
	}
	if target.Distinct() != jobs-rejected || retried.Load() != flaky || failed.Load() != rejected || wrong.Load() != 0 || flaky == 0 || rejected == 0 {
		t.Fatalf("%d done, %d retried, %d failed, %d wrong; want %d, %d and %d", target.Distinct(), retried.Load(), failed.Load(), wrong.Load(),
			jobs-rejected, flaky, rejected)
	}
}
