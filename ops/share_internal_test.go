package ops

import (
	"testing"
	"testing/synctest"
)

// Turns that are given back together go to all requests that wait and fit, not to the first of them alone.
func TestAllWhoFitAreServed(t *testing.T) {
	for name, give := range map[string][]int64{"in one piece": {1000}, "in pieces": make([]int64, 1000)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShare(1000, wakeTime)
				if !s.take(t.Context(), 1000) {
					t.Fatal("what is free was not taken")
				}
				taken := make(chan bool, 1000)
				for range 1000 {
					go func() { taken <- s.take(t.Context(), 1) }()
				}
				synctest.Wait()
				for _, n := range give {
					s.give(max(n, 1))
				}
				for range 1000 {
					if !<-taken {
						t.Fatal("one who fits has waited in vain")
					}
				}
			})
		})
	}
}
