package bench

import "testing"

// Every way is right with one admitter; with several, only the ways that decide in one operation
// stay below the capacity.
func TestCounting(t *testing.T) {
	e := newEnvironment(t)
	for i, way := range CountingWays {
		counted, err := e.Counting(t.Context(), way, 1200)
		if err != nil || counted.Admit <= 0 || counted.AdmitServer <= 0 || counted.Expire <= 0 {
			t.Errorf("%s: %+v, %v", way, counted, err)
		}
		if i >= 3 && (counted.Over != 0 || counted.Late != 0) {
			t.Errorf("%s: %+v: want none above the capacity, and none counted who is gone", way, counted)
		}
	}
}

func TestDrift(t *testing.T) {
	e := newEnvironment(t)
	// Each subscriber decrements the counter for each visitor who leaves: without one the count
	// stays too high by half, with two it falls too low.
	for subscribers, want := range []Drift{{500, 500}, {0, 1000}, {-500, 1500}} {
		if got, err := e.CountingDrift(t.Context(), subscribers); err != nil || got != want {
			t.Errorf("%d subscribers: %+v, %v; want %+v", subscribers, got, err, want)
		}
	}
	if got, err := e.RoomDrift(t.Context()); err != nil || got != (Drift{0, DriftCapacity}) {
		t.Errorf("sluice: %+v, %v", got, err)
	}
}
