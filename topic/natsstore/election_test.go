package natsstore

import "testing"

// TestElectionTimers fails when the engine's timers are not the ones that ours were chosen for.
func TestElectionTimers(t *testing.T) {
	if err := setElectionTimers(); err != nil {
		t.Fatal(err)
	}
}
