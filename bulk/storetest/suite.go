package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Factory says how to get a store. Its functions fail the test if they cannot.
// They are called inside a synctest bubble: everything that a store starts must
// end when it is closed.
type Factory struct {
	// Open returns an empty store. Its config has defaults.
	Open func(t testing.TB, config bulk.Config) bulk.Store
	// Reopen closes the store and opens its data again. Nil if it cannot.
	Reopen func(t testing.TB, s bulk.Store) bulk.Store
	// Crash ends the store as the loss of power does, so that everything that is
	// not durable is lost, and opens its data again. Nil if it cannot.
	Crash func(t testing.TB, s bulk.Store) bulk.Store
	// Shards is over how many shards a store spreads tenants; 0 and 1 are alike. Each
	// keeps its part of the events, and order over tenants is kept within each only.
	Shards int
	// Rounds is how many rounds the model runs, about 3,000 steps each, and LongRounds
	// how many with SLUICE_LONG=1. Defaults 2 and 20.
	Rounds, LongRounds int
}

// testCase is one rule of the contract.
type testCase struct {
	name string
	// reopens marks cases that need Factory.Reopen.
	reopens bool
	run     func(k *kit)
}

// Run runs the whole suite against the stores of a factory.
func Run(t *testing.T, factory Factory) {
	if factory.Open == nil {
		t.Fatal("storetest: Factory.Open is nil")
	}
	groups := []struct {
		name  string
		cases []testCase
	}{
		{"upload", uploadCases}, {"move", moveCases}, {"actions", actionCases}, {"settings", settingsCases},
		{"schedules", scheduleCases},
		{"admit", admitCases}, {"limits", limitCases}, {"auto", autoCases}, {"lease", leaseCases}, {"retry", retryCases},
		{"restart", restartCases}, {"results", resultCases}, {"events", eventCases},
		{"concurrent", concurrentCases}, {"abrupt", abruptCases},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				if c.reopens && factory.Reopen == nil {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { c.run(&kit{t: t, factory: factory}) })
				})
			}
		})
	}
	t.Run("model", func(t *testing.T) { checkModel(t, factory) })
}

// restarts returns the ways in which a case can restart the store.
func (k *kit) restarts() map[string]func() {
	ways := map[string]func(){"reopen": k.reopen}
	if k.factory.Crash != nil {
		ways["crash"] = k.crash
	}
	return ways
}

func (k *kit) reopen() {
	k.t.Helper()
	k.store = k.factory.Reopen(k.t, k.store)
	k.keepEvents(k.most)
}

func (k *kit) crash() {
	k.t.Helper()
	k.store = k.factory.Crash(k.t, k.store)
	k.keepEvents(k.most)
}

// advance lets time pass. The clock stands still otherwise.
func (k *kit) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
