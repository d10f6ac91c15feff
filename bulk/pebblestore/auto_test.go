package pebblestore_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/storetest"
)

// TestFoundRateSurvivesARestart checks that a found rate survives a restart, unless a fixed
// rate was set in between.
func TestFoundRateSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctx := vfs.NewMem(), t.Context()
		var store *pebblestore.Store
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		open := func() {
			t.Helper()
			var err error
			store, err = pebblestore.Open("data", pebblestore.Options{Bulk: bulk.Config{RequestsPerSecond: -1}, FS: fs, Logger: slog.New(slog.DiscardHandler)})
			must(err)
		}
		found := func() float64 {
			t.Helper()
			b, err := storetest.Backlog(ctx, store)
			must(err)
			return b.Found["api"]
		}
		open()
		must(store.Set(ctx, bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{Auto: true}}))
		passAll(t, store)
		if rate := found(); rate != 640 {
			t.Fatalf("the rate found is %g, want 640 after six doublings of 10", rate)
		}
		must(store.Close())
		open()
		if rate := found(); rate != 320 {
			t.Errorf("after a restart the rate found is %g, want 320, as it was at the last lease", rate)
		}
		must(store.Set(ctx, bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{RequestsPerSecond: 7}}))
		must(store.Set(ctx, bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{Auto: true}}))
		must(store.Close())
		open()
		if rate := found(); rate != bulk.AutoFirst {
			t.Errorf("after a number was set in between the rate found is %g, want %g", rate, bulk.AutoFirst)
		}
		must(store.Close())
	})
}

// passAll runs jobs against the target for six windows of a second, as many as may start;
// each succeeds.
func passAll(t *testing.T, store *pebblestore.Store) {
	const jobs = 2000
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := store.Create(ctx, bulk.Spec{ID: "a", Tenant: "t", Type: bulk.WebhookType, Target: &bulk.Target{Name: "api", URL: "http://api/"}})
	must(err)
	payloads := make([][]byte, jobs)
	for i := range payloads {
		payloads[i] = []byte("1")
	}
	_, err = store.Append(ctx, "a", 0, payloads)
	must(err)
	for _, transition := range []bulk.Transition{{Kind: bulk.Seal, Total: jobs}, {Kind: bulk.Start}} {
		_, err = store.Transition(ctx, "a", transition)
		must(err)
	}
	for range 6 {
		b, err := storetest.Backlog(ctx, store)
		must(err)
		_, err = store.Admit(ctx, []bulk.Grant{{Number: b.Lines[0].Waiting[0].Number, Jobs: jobs}})
		must(err)
		leased, err := store.Lease(ctx, bulk.LeaseRequest{Types: []string{bulk.WebhookType}, Max: jobs, LeaseFor: time.Minute})
		must(err)
		settlements := make([]bulk.Settlement, len(leased))
		for i, job := range leased {
			settlements[i] = bulk.Settlement{Lease: job.Lease, Kind: bulk.Succeeded, Took: time.Millisecond}
		}
		_, err = store.Settle(ctx, settlements)
		must(err)
		time.Sleep(time.Second)
	}
}
