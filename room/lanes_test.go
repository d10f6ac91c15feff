package room

import (
	"testing"

	"pgregory.net/rapid"
)

// The calls of two lanes in which somebody waits all the time have the proportion of the shares,
// to one call of each, whatever the other lanes do; and somebody is called as long as somebody waits.
func TestLanesHaveTheirShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var terms Terms
		for l := range terms.Shares {
			terms.Shares[l] = rapid.Int64Range(1, maxShare).Draw(t, "share")
		}
		var turns Turns
		some := rapid.SliceOfN(rapid.Uint8(), 1, 40)
		for range rapid.IntRange(0, 30).Draw(t, "calls before") {
			waiting := rapid.Uint8().Draw(t, "waiting before")
			_, turns, _ = terms.Next(turns, func(l int) bool { return waiting>>l&1 == 1 })
		}
		always := rapid.Uint8Range(1, 255).Draw(t, "always")
		var calls [MaxLanes]float64
		for _, waiting := range some.Draw(t, "waiting") {
			for range 20 {
				lane, after, ok := terms.Next(turns, func(l int) bool { return (waiting|always)>>l&1 == 1 })
				if !ok || (waiting|always)>>lane&1 == 0 {
					t.Fatalf("nobody of %b is called: %d, %v", waiting|always, lane, ok)
				}
				turns = after
				calls[lane]++
			}
			for a := range MaxLanes {
				for b := range MaxLanes {
					x, y := 1/float64(terms.Shares[a]), 1/float64(terms.Shares[b])
					if a != b && always>>a&1 == 1 && always>>b&1 == 1 && calls[a]*x-calls[b]*y > (x+y)*1.02 {
						t.Fatalf("lanes %d and %d of the shares %v have called %v", a, b, terms.Shares, calls)
					}
				}
			}
		}
	})
}

func TestLanesOfASetting(t *testing.T) {
	s := Settings{Lanes: "vip=20, members=30,public=50"}
	for name, want := range map[string]int{"public": 0, "members": 1, "vip": 2, "": 0, "gold": 0} {
		if got := s.LaneNumber(name); got != want {
			t.Errorf("%q is lane %d, want %d", name, got, want)
		}
	}
	if w := s.LaneWeight(2); w != 5 || s.LaneName(2) != "vip" || s.LaneName(3) != "" || s.LaneWeight(3) != 100 {
		t.Errorf("the weight of vip is %v, and of a lane that was removed %v", w, s.LaneWeight(3))
	}
	if w := (&Settings{}).LaneWeight(0); w != 1 {
		t.Errorf("the weight in a room without lanes is %v", w)
	}
}
