package bench

import (
	"fmt"
	"testing"
)

// Every way is right with one admitter; with several, only the ways that decide in one operation
// stay below the capacity.
func TestCounting(t *testing.T) {
	for i, way := range CountingWays {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			counted, err := environment.Counting(t.Context(), way, 1200)
			if err != nil || counted.Admit <= 0 || counted.AdmitServer <= 0 || counted.Expire <= 0 {
				t.Errorf("%+v, %v", counted, err)
			}
			if i >= 3 && (counted.Over != 0 || counted.Late != 0) {
				t.Errorf("%+v: want none above the capacity, and none counted who is gone", counted)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	// Each subscriber decrements the counter for each visitor who leaves: without one the count
	// stays too high by half, with two it falls too low.
	for subscribers, want := range []Drift{{500, 500}, {0, 1000}, {-500, 1500}} {
		t.Run(fmt.Sprint(subscribers, " subscribers"), func(t *testing.T) {
			t.Parallel()
			if got, err := environment.CountingDrift(t.Context(), subscribers); err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
	t.Run("sluice", func(t *testing.T) {
		t.Parallel()
		if got, err := environment.RoomDrift(t.Context()); err != nil || got != (Drift{0, DriftCapacity}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
