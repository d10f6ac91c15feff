package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Harness describes how to open a store.
type Harness struct {
	// Bubble runs each test in a bubble of testing/synctest: all goroutines of a store must end
	// when it is closed.
	Bubble bool
	// Open returns an empty store. It fails the test if it cannot.
	Open func(t testing.TB) Opened
}

// Opened is an open store. The suite closes it.
type Opened struct {
	Store room.Store
	// Advance moves the store's clock. It may be nil in a bubble: then the suite sleeps.
	Advance func(d time.Duration)
	// Reopen ends the last opened store, abruptly if possible, and opens its data again. It is nil
	// if the process holds no state, as when a server has it.
	Reopen func() room.Store
}

// testCase is one rule of the contract.
type testCase struct {
	name string
	// reopens marks cases that need Opened.Reopen.
	reopens bool
	run     func(k *kit)
}

// group is a group of cases about one subject.
type group struct {
	name  string
	cases []testCase
}

var groups = []group{
	{"rooms", roomCases}, {"keys", keyCases}, {"ownership", ownershipCases}, {"enter", enterCases},
	{"lottery", lotteryCases}, {"ask", askCases}, {"call", callCases}, {"lanes", laneCases}, {"leave", leaveCases}, {"clear", clearCases}, {"passes", passCases}, {"expire", expireCases},
	{"ticks", tickCases}, {"rules", ruleCases}, {"away", awayCases}, {"reopen", reopenCases}, {"events", eventCases}, {"status", statusCases},
}

// Run runs the conformance cases.
func Run(t *testing.T, harness Harness) {
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					harness.within(t, func(t *testing.T) {
						k := newKit(t, harness)
						if !c.reopens || k.opened.Reopen != nil {
							c.run(k)
						}
					})
				})
			}
		})
	}
}

// within runs a test, in a bubble if the harness asks for it.
func (h Harness) within(t *testing.T, test func(t *testing.T)) {
	if h.Bubble {
		synctest.Test(t, test)
		return
	}
	test(t)
}

// sleep is Opened.Advance in a bubble.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
