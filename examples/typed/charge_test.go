package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

func Example() {
	main()
	// Output:
	// COMPLETED 2 succeeded 1 failed 1 throttled
	// count 2, sum "12.44"
	// failed: march-1 an order of nobody: not to be retried
}

// TestCharger makes one attempt of the worker, without an engine.
func TestCharger(t *testing.T) {
	status := http.StatusOK
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{}`))
	}))
	defer bank.Close()
	charger := &Charger{Bank: bank.URL}

	bulktest.Work(t, charger, Charge{"alice", "0.10"}).RequireResult(Receipt{"action-0", "0.10"})
	bulktest.Work(t, charger, Charge{}).RequireFailed().RequireErrorText("an order of nobody")
	status = http.StatusTooManyRequests
	bulktest.Work(t, charger, Charge{"alice", "0.10"}).RequireThrottled(7 * time.Second)
	status = http.StatusInternalServerError
	bulktest.Work(t, charger, Charge{"alice", "0.10"}).RequireRetried(0).RequireErrorText("500")

	// With the middleware, the timeout and the retry delay that the mux has.
	job := bulktest.NewJob(t, "", Charge{"alice", "0.10"})
	job.Attempt = 2
	bulktest.Run(t, Mux(bank.URL), job, bulk.Config{}).RequireRetried(2 * time.Minute)
}

// The program inserts a job. No worker runs it: the mux has no worker of that type.
func TestSubmit(t *testing.T) {
	engine := bulktest.New(t, bulk.NewMux(), bulk.Config{})
	if _, err := Submit(t.Context(), engine, "march", Charge{"alice", "0.10"}, Charge{"bob", "0.20"}); err != nil {
		t.Fatal(err)
	}
	action := bulktest.RequireAction(t, engine, "shop", "order:charge")
	if action.ID != "march" || action.Total != 2 {
		t.Errorf("the action is %+v", action)
	}
	bulktest.RequireJobs(t, engine, "shop", Charge{"alice", "0.10"}, Charge{"bob", "0.20"})
}

// The whole engine in virtual time: the attempts take six minutes of a bubble, and a moment of the
// test.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := bulktest.New(t, Mux("no URL"), bulk.Config{})
		engine.Timeout = time.Hour
		began := time.Now()
		action := engine.Run(t, bulk.Spec{}, Charge{"alice", "0.10"}, Charge{"", "99.00"})
		bulktest.RequireCounts(t, action, bulk.Completed, 0, 2)
		bulktest.RequireDeadLetters(t, engine, action.ID, "unsupported protocol scheme", "an order of nobody")
		if took := time.Since(began); took < 6*time.Minute || took > 7*time.Minute {
			t.Errorf("took %s, want 1 + 2 + 3 minutes", took)
		}
	})
}

// A bank that accepts 5 orders in 100 ms, and no limit of our own: throttled jobs are retried
// without using an attempt.
func TestTheBankIsBusy(t *testing.T) {
	bank := bulktest.NewTarget(bulktest.TargetOptions{Rate: 5, Window: 100 * time.Millisecond})
	server := httptest.NewServer(bank)
	defer server.Close()
	engine := bulktest.New(t, Mux(server.URL), bulk.Config{MaxAttempts: 1, Window: 100 * time.Millisecond, BackoffBase: 50 * time.Millisecond})
	orders := make([]any, 20)
	for i := range orders {
		orders[i] = Charge{"alice", "0.10"}
	}
	action := engine.Run(t, bulk.Spec{}, orders...)
	bulktest.RequireCounts(t, action, bulk.Completed, 20, 0)
	for _, window := range bank.Windows() {
		if served := window.Total().Succeeded; served > 5 {
			t.Errorf("the bank served %d orders in a window", served)
		}
	}
	if total := bank.Total(); total.Succeeded != 20 || int64(total.Throttled) != action.Throttled {
		t.Errorf("the bank saw %+v, the action was throttled %d times", total, action.Throttled)
	}
}
