package sim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// TestTypesThatStandStill checks that other job types proceed, under a limit of ten per second,
// while one type has no worker and the handlers of another hang.
func TestTypesThatStandStill(t *testing.T) {
	hangs := func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, types := range map[string][]string{
		"nobody runs them":   {"nobody"},
		"handlers hang":      {"hangs"},
		"of many types":      {"n.0", "n.1", "n.2", "n.3", "n.4", "n.5", "n.6", "n.7", "n.8", "n.9"},
		"both, of one limit": {"nobody", "hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := bulk.NewMux()
			mux.HandleFunc("hangs", hangs)
			config := bulk.Config{RequestsPerSecond: 10, ReadyMax: 50, JobTimeout: time.Hour, ShutdownGrace: time.Second}
			simulate(t, config, 0, mux, func(w *world) {
				for _, name := range types {
					w.submit(bulk.Spec{Tenant: "stuck", Type: name}, 100)
				}
				time.Sleep(10 * time.Second)
				id := w.submit(bulk.Spec{Tenant: "other", Type: "echo"}, 50)
				time.Sleep(7 * time.Second)
				a, err := w.engine.Action(context.Background(), id)
				if err != nil || a.Succeeded < 50 {
					t.Errorf("%d of 50 jobs were done after 7 s at 10 a second, error %v", a.Succeeded, err)
				}
			})
		})
	}
}

// TestRemoteTypesUnderALowLimit runs a type of remote workers under a low limit.
func TestRemoteTypesUnderALowLimit(t *testing.T) {
	simulate(t, bulk.Config{RequestsPerSecond: 2}, 0, bulk.NewMux(), func(w *world) {
		w.submit(bulk.Spec{Tenant: "t", Type: "remote"}, 5)
		began := time.Now()
		for done := 0; done < 5; {
			jobs, err := w.engine.Lease(context.Background(), bulk.LeaseRequest{Types: []string{"remote"}, Max: 5}, 5*time.Second)
			if err != nil || len(jobs) == 0 {
				t.Fatalf("leased %d jobs, error %v", len(jobs), err)
			}
			for _, j := range jobs {
				verdicts, err := w.engine.Settle(context.Background(), []engine.Report{{Lease: j.Lease, Kind: bulk.Succeeded}})
				if err != nil || verdicts[0] != bulk.Accepted {
					t.Fatal(verdicts, err)
				}
			}
			done += len(jobs)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("5 jobs at 2 a second took %v", took)
		}
	})
}

// TestConcurrencyIsUsed keeps a target with a concurrency limit of one busy.
func TestConcurrencyIsUsed(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc(bulk.WebhookType, func(context.Context, *bulk.Job) ([]byte, error) {
		time.Sleep(10 * time.Millisecond)
		return nil, nil
	})
	simulate(t, bulk.Config{}, 0, mux, func(w *world) {
		w.set(bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{Concurrency: 1}})
		began := time.Now()
		w.finish(w.submit(bulk.Spec{Tenant: "t", Target: &bulk.Target{Name: "api", URL: "http://api"}}, 100))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("100 jobs of 10 ms, one at a time, took %v", took)
		}
	})
}

// TestStopLeavesHandlersThatHang stops an engine while a handler ignores its context.
func TestStopLeavesHandlersThatHang(t *testing.T) {
	var running, release chan struct{}
	mux := bulk.NewMux()
	mux.HandleFunc("hangs", func(context.Context, *bulk.Job) ([]byte, error) {
		close(running)
		<-release
		return nil, errors.New("too late")
	})
	simulate(t, bulk.Config{ShutdownGrace: 3 * time.Second}, 0, mux, func(w *world) {
		running, release = make(chan struct{}), make(chan struct{})
		id := w.submit(bulk.Spec{Tenant: "t", Type: "hangs"}, 1)
		<-running
		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- w.engine.Stop(context.Background()) }()
		select {
		case err := <-stopped:
			if err == nil || !strings.Contains(err.Error(), "hangs worker") {
				t.Errorf("stopping says %v, want the worker that did not stop", err)
			}
		case <-time.After(time.Minute):
			t.Errorf("still stopping after %v", time.Since(began))
		}
		a, err := w.engine.Action(context.Background(), id)
		if err != nil || a.InFlight != 0 || a.Pending != 1 {
			t.Errorf("%d in flight, %d pending, error %v: want the job handed back", a.InFlight, a.Pending, err)
		}
		w.engine.Close(t)
		close(release)
	})
}
