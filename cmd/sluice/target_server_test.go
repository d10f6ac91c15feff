package main

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
)

func TestTargetStartAndStop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	target := newTarget(targetOptions{})
	if err := target.Stop(t.Context()); err != nil {
		t.Fatalf("Stop before Start: %v", err)
	}
	url, err := target.Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Start(); err == nil {
		t.Fatal("it started twice")
	}
	handler, err := webhook.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := handler.Handle(t.Context(), targetJob(url, 1))
	if err != nil || string(result) != `{"n":"1"}` {
		t.Fatalf("Handle = %q, %v", result, err)
	}
	handler.Close()
	for range 2 {
		if err := target.Stop(t.Context()); err != nil {
			t.Fatalf("Stop: %v", err)
		}
	}
	if _, err := handler.Handle(t.Context(), targetJob(url, 2)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("Handle after Stop = %v", err)
	}
}

func TestTargetStopBreaksOff(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	target := newTarget(targetOptions{SlowShare: 1, SlowFor: time.Hour})
	url, err := target.Start()
	if err != nil {
		t.Fatal(err)
	}
	handler, err := webhook.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	stopped := make(chan error, 1)
	go func() {
		for target.Stats().Slow == 0 {
			runtime.Gosched() // a real socket: there is nothing to wait on but the counter
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		stopped <- target.Stop(ctx)
	}()
	if _, err := handler.Handle(t.Context(), targetJob(url, 1)); err == nil {
		t.Error("the request that was broken off succeeded")
	}
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Stop = %v; want it to say that it was not in time", err)
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

// foretold counts the first jobs that are to fail once, and for good.
func foretold(options *targetOptions, url string, jobs int64) (flaky, rejected int64) {
	for n := range jobs {
		switch fate := fateOf(options, targetJob(url, n+1).ID()); {
		case fate.flaky:
			flaky++
		case fate.rejected:
			rejected++
		}
	}
	return flaky, rejected
}

// Every job goes through the faults to the one end that is foretold for it.
func TestTargetThroughWebhooks(t *testing.T) {
	const jobs, workers = 2000, 32
	options := targetOptions{Rate: 300, Window: 50 * time.Millisecond, SlowShare: 0.02, SlowFor: 20 * time.Millisecond,
		FlakyShare: 0.05, RejectShare: 0.01}
	target := newTarget(options)
	url, err := target.Start()
	if err != nil {
		t.Fatal(err)
	}
	handler, err := webhook.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var next, throttled, retried, failed, wrong atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for n := next.Add(1); n <= jobs; n = next.Add(1) {
				job := targetJob(url, n)
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
						throttled.Add(1)
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
	handler.Close()
	if err := target.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	flaky, rejected := foretold(&options, url, jobs)
	got := target.Stats()
	want := targetStats{Accepted: jobs - rejected, Distinct: jobs - rejected, Failed: flaky, Rejected: rejected,
		Throttled: throttled.Load(), Slow: got.Slow, Requests: jobs + flaky + throttled.Load()}
	if got != want || retried.Load() != flaky || failed.Load() != rejected || wrong.Load() != 0 || flaky == 0 || rejected == 0 {
		t.Fatalf("Stats = %+v; want %+v; %d retried, %d failed, %d wrong", got, want, retried.Load(), failed.Load(), wrong.Load())
	}
}

// What the target and the webhook client sustain together: the demo's shares,
// no rate limit, 256 workers.
func BenchmarkTarget(b *testing.B) {
	target := newTarget(demoTargetOptions(0))
	url, err := target.Start()
	if err != nil {
		b.Fatal(err)
	}
	handler, err := webhook.New(webhook.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	b.SetParallelism(128)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			// Fates are part of the load: 500 and 422 are answers, too.
			var status *webhook.StatusError
			if _, err := handler.Handle(context.Background(), targetJob(url, next.Add(1))); err != nil && !errors.As(err, &status) {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	handler.Close()
	if err := target.Stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}
