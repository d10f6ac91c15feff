package storetest

import (
	"slices"
	"testing"

	"github.com/sluice-project/sluice/topic"
)

// Factory opens stores. Its functions fail the test if they cannot.
type Factory struct {
	// Open returns an empty store.
	Open func(t testing.TB) topic.Store
	// Reopen closes the store and opens its data again. Nil if the store has none.
	Reopen func(t testing.TB, s topic.Store) topic.Store
	// Crash opens the data that a process killed now would leave. Nil if that is not
	// possible.
	Crash func(t testing.TB, s topic.Store) topic.Store
}

// testCase is one rule of the contract.
type testCase struct {
	name string
	run  func(k *kit)
}

// restartCase is a rule that holds over a restart.
type restartCase struct {
	name string
	run  func(k *kit, restart func())
}

// group is the cases of one subject.
type group struct {
	name  string
	cases []testCase
}

var (
	logGroups = []group{
		{"logs", logCases}, {"append", appendCases}, {"fence", fenceCases}, {"read", readCases}, {"trim", trimCases}, {"wait", waitCases},
	}
	metaGroups = []group{{"meta", metaCases}, {"guards", guardCases}, {"watches", watchCases}, {"concurrent", concurrentCases}}
)

// Run runs the whole suite against the stores of a factory.
func Run(t *testing.T, factory Factory) {
	run(t, factory, slices.Concat(logGroups, metaGroups))
	t.Run("model of a log", func(t *testing.T) { checkLog(t, factory) })
	checkMetaAll(t, factory)
}

// RunLogs runs the suite of logs only, for stores with more than one kind of log.
func RunLogs(t *testing.T, factory Factory) {
	run(t, factory, logGroups)
	t.Run("model of a log", func(t *testing.T) { checkLog(t, factory) })
}

// RunMeta runs the suite of the metadata only, for stores with more than one kind of it.
func RunMeta(t *testing.T, factory Factory) {
	run(t, factory, metaGroups)
	checkMetaAll(t, factory)
}

// checkMetaAll runs the model of the metadata and checks its histories.
func checkMetaAll(t *testing.T, factory Factory) {
	t.Run("model of the metadata", func(t *testing.T) { checkMeta(t, factory) })
	t.Run("histories", func(t *testing.T) { checkOneHistory(t, factory) })
}

// checkOneHistory checks a history of the metadata of one node.
func checkOneHistory(t testing.TB, factory Factory) {
	m := newKit(t, factory).store.Meta()
	checkHistory(t, []topic.Meta{m, m}, nil)
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

// newWays returns the ways to restart a store.
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
