package storetest

import (
	"testing"

	"github.com/sluice-project/sluice/topic"
)

// Factory says how to get a store. Its functions fail the test if they cannot.
type Factory struct {
	// Open returns an empty store.
	Open func(t testing.TB) topic.Store
	// Reopen closes the store and opens its data again. Nil if it cannot.
	Reopen func(t testing.TB, s topic.Store) topic.Store
	// Crash opens what a process that was killed now would leave. Nil if it
	// cannot.
	Crash func(t testing.TB, s topic.Store) topic.Store
}

// testCase is one rule of the contract.
type testCase struct {
	name string
	run  func(k *kit)
}

// restartCase is one rule that holds over a restart.
type restartCase struct {
	name string
	run  func(k *kit, restart func())
}

// group is the cases about one thing.
type group struct {
	name  string
	cases []testCase
}

// Run runs the whole suite against the stores of a factory.
func Run(t *testing.T, factory Factory) {
	run(t, factory, []group{
		{"logs", logCases}, {"append", appendCases}, {"fence", fenceCases}, {"read", readCases},
		{"trim", trimCases}, {"wait", waitCases}, {"meta", metaCases}, {"guards", guardCases}, {"watches", watchCases},
		{"concurrent", concurrentCases},
	})
	t.Run("model of a log", func(t *testing.T) { checkLog(t, factory) })
	checkMetaAll(t, factory)
}

// RunLogs runs the part of the suite that is about logs, for a store that can keep
// them in more than one way.
func RunLogs(t *testing.T, factory Factory) {
	run(t, factory, []group{
		{"logs", logCases}, {"append", appendCases}, {"fence", fenceCases}, {"read", readCases},
		{"trim", trimCases}, {"wait", waitCases},
	})
	t.Run("model of a log", func(t *testing.T) { checkLog(t, factory) })
}

// RunMeta runs the part of the suite that is about the metadata, for a store that
// can keep it in more than one way.
func RunMeta(t *testing.T, factory Factory) {
	run(t, factory, []group{{"meta", metaCases}, {"guards", guardCases}, {"watches", watchCases}, {"concurrent", concurrentCases}})
	checkMetaAll(t, factory)
}

// checkMetaAll runs the model of the metadata, and checks histories of it.
func checkMetaAll(t *testing.T, factory Factory) {
	t.Run("model of the metadata", func(t *testing.T) { checkMeta(t, factory) })
	t.Run("histories", func(t *testing.T) {
		m := newKit(t, factory).store.Meta()
		checkHistory(t, []topic.Meta{m, m}, nil)
	})
}

func run(t *testing.T, factory Factory, groups []group) {
	if factory.Open == nil {
		t.Fatal("storetest: Factory.Open is nil")
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) { c.run(newKit(t, factory)) })
			}
		})
	}
	for way := range newWays(factory) {
		t.Run(way, func(t *testing.T) {
			for _, c := range restartCases {
				t.Run(c.name, func(t *testing.T) {
					k := newKit(t, factory)
					c.run(k, func() { k.restart(way) })
				})
			}
		})
	}
}

// newWays returns the ways in which a store can restart.
func newWays(factory Factory) map[string]func(testing.TB, topic.Store) topic.Store {
	ways := map[string]func(testing.TB, topic.Store) topic.Store{}
	if factory.Reopen != nil {
		ways["reopen"] = factory.Reopen
	}
	if factory.Crash != nil {
		ways["crash"] = factory.Crash
	}
	return ways
}
