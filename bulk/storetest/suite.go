package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Factory has the functions that make stores. They fail the test if they cannot. They are
// called inside a synctest bubble: all goroutines of a store must end when it is closed.
type Factory struct {
	// Open returns an empty store. Its config has defaults.
	Open func(t testing.TB, config bulk.Config) bulk.Store
	// Reopen closes the store and opens its data again. Nil if that is not possible.
	Reopen func(t testing.TB, s bulk.Store) bulk.Store
	// Crash ends the store like a loss of power, so that everything not durable is lost, and
	// opens its data again. Nil if that is not possible.
	Crash func(t testing.TB, s bulk.Store) bulk.Store
	// Shards is the number of shards over which a store spreads tenants; 0 and 1 mean the
	// same. Each shard keeps its part of the events; events of different tenants are in order
	// only within a shard.
	Shards int
	// Rounds is the number of rounds of the model, about 3,000 steps each, and LongRounds
	// that with SLUICE_LONG=1. Defaults 2 and 20.
	Rounds, LongRounds int
}

// testCase is one rule of the contract.
type testCase struct {
	name string
	// reopens reports whether the case needs Factory.Reopen.
	reopens bool
	run     func(k *kit)
}

// groups has the cases by subject.
var groups = []struct {
	name  string
	cases []testCase
}{
	{"upload", uploadCases}, {"transition", transitionCases}, {"actions", actionCases}, {"settings", settingsCases},
	{"schedules", scheduleCases}, {"streams", streamCases}, {"quotas", quotaCases},
	{"admit", admitCases}, {"limits", limitCases}, {"keys", keyCases}, {"auto", autoCases}, {"lease", leaseCases}, {"retry", retryCases},
	{"policies", policyCases}, {"restart", restartCases}, {"results", resultCases}, {"jobs", jobCases}, {"events", eventCases},
	{"concurrent", concurrentCases}, {"abrupt", abruptCases},
}

// Run runs the whole suite against the stores of a factory.
func Run(t *testing.T, factory Factory) {
	if factory.Open == nil {
		t.Fatal("storetest: Factory.Open is nil")
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

// advance advances the clock, which otherwise stands still.
func (k *kit) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
