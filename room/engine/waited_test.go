package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

func placed(number int64, state room.State, isNew bool, since, now time.Duration) *room.Place {
	return &room.Place{Number: number, State: state, New: isNew, Since: keyTime.Add(since), Now: keyTime.Add(now)}
}

func TestWaits(t *testing.T) {
	var w waited
	if got := w.now(keyTime); got != nil {
		t.Errorf("nobody was called, and the waits are %+v", got)
	}
	for i := range int64(100) {
		w.see(placed(i, room.Waiting, true, 0, 0))
		w.see(placed(i, room.Waiting, false, 0, time.Second))
	}
	for i := range int64(100) { // they are called each second, and come two seconds later
		called := time.Duration(i+1) * time.Second
		for range 2 {
			w.see(placed(i, room.Inside, false, called, called+2*time.Second))
		}
	}
	w.see(placed(7, room.Gone, false, 0, 200*time.Second))
	if got, want := w.now(keyTime.Add(200*time.Second)), (Waits{50 * time.Second, 95 * time.Second, 100}); got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.see(placed(1000, room.Inside, true, 0, 200*time.Second)) // a free slot
	w.see(placed(1001, room.Waiting, true, 0, 200*time.Second))
	w.see(placed(1001, room.Gone, false, 0, 201*time.Second))
	if got, want := w.now(keyTime.Add(102*time.Second+WaitsSpan)), (Waits{0, 0, 1}); got == nil || *got != want {
		t.Errorf("later %+v, want %+v", got, want)
	}
	if got := w.now(keyTime.Add(time.Hour)); got != nil {
		t.Errorf("much later %+v", got)
	}
}

// However many wait, few are watched, and they are a fair sample: the waits are about those of all.
func TestWaitsOfManyAreASample(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64Range(1, 20_000).Draw(rt, "visitors")
		var w waited
		for i := range n {
			w.see(placed(i, room.Waiting, true, 0, 0))
			if len(w.entered) > maxTracked {
				rt.Fatalf("%d are watched", len(w.entered))
			}
		}
		if n > 0 && len(w.entered) < min(int(n), maxTracked/2) {
			rt.Fatalf("of %d only %d are watched", n, len(w.entered))
		}
		for i := range n {
			called := time.Duration(i) * time.Second / time.Duration(n) * 300
			w.see(placed(i, room.Called, false, called, called))
		}
		got := w.now(keyTime.Add(300 * time.Second))
		if got == nil || got.Of > maxWaits || n > 1000 && ((got.P50-150*time.Second).Abs() > 10*time.Second || (got.P95-285*time.Second).Abs() > 10*time.Second) {
			rt.Fatalf("of %d: %+v", n, got)
		}
		w.empty(keyTime.Add(300 * time.Second))
		if w.see(placed(n+1, room.Waiting, true, 0, 0)); len(w.entered) != 1 {
			rt.Fatal("with an empty line not all are watched")
		}
	})
}
