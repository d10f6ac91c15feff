package engine_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/puzzle"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

const least, most = 10, 16

func (r *rig) puzzle(name string, client netip.Addr) (text, proof string, bits int) {
	r.t.Helper()
	text, bits, err := r.Puzzle(ctx, name, client, least, most)
	if err != nil {
		r.t.Fatal(err)
	}
	return text, puzzle.Solve(text, bits), bits
}

// A puzzle is solved once, in its room, by its client and in time; by any instance.
func TestPuzzles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storetest.NewMemory())
		home, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		r.put("shop", teller(1))
		r.put("fair", teller(1))
		solves := func(want bool, name string, client netip.Addr, text, proof string) {
			t.Helper()
			if got, err := r.Solved(ctx, name, client, text, proof); got != want || err != nil {
				t.Errorf("solved: %v, %v; want %v", got, err, want)
			}
		}
		text, proof, _ := r.puzzle("shop", home)
		another, _, _ := r.puzzle("shop", home)
		solves(false, "fair", home, text, proof)
		solves(false, "shop", other, text, proof)
		solves(false, "shop", home, another, proof)
		solves(false, "shop", home, text, proof+".0")
		solves(true, "shop", home, text, proof)
		solves(false, "shop", home, text, proof)
		text, proof, _ = r.puzzle("shop", nowhere)
		time.Sleep(engine.PuzzleTime - 5*time.Second)
		r = r.restarted()
		solves(true, "shop", nowhere, text, proof)
		text, proof, _ = r.puzzle("shop", home)
		time.Sleep(engine.PuzzleTime + 2*time.Second)
		solves(false, "shop", home, text, proof)
		if _, err := r.Solved(ctx, "none", home, text, proof); err == nil {
			t.Error("a room that does not exist has a puzzle")
		}
		r.stop()
	})
}

// Puzzles become harder while visitors join faster than the room lets them in, and easy again
// after that.
func TestPuzzlesBecomeHarder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storetest.NewMemory())
		defer r.stop()
		settings := teller(600) // 10 a second
		settings.MaxWaiting = 10_000
		r.put("shop", settings)
		bits := func(want int) {
			t.Helper()
			if _, _, got := r.puzzle("shop", nowhere); got != want {
				t.Errorf("a puzzle has %d bits, want %d", got, want)
			}
		}
		bits(least)
		for range 60 {
			for range 80 {
				r.enter("shop")
			}
			time.Sleep(time.Second)
		}
		bits(least + 3) // eight times as many
		time.Sleep(3 * time.Minute)
		bits(least)
	})
}

// A program has as large a part of the places as of the joins, which its hashes bound: it makes 20
// requests a second from 1,000 addresses, two for each join, and a visitor joins each second.
func TestWhatWorkCosts(t *testing.T) {
	for _, test := range []struct {
		hashes, joins float64 // a second
	}{{100e3, 1}, {1e6, 4}, {10e6, 10}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, storetest.NewMemory())
			defer r.stop()
			r.put("shop", room.Settings{Mode: room.Teller, Capacity: 200, PassTTL: 10 * time.Minute, MaxWaiting: 10_000})
			const seconds = 300
			joined, work := 0, 0.
			for range seconds {
				r.enter("shop")
				work = min(work+test.hashes, 10*test.hashes)
				for range 10 {
					_, bits, err := r.Puzzle(ctx, "shop", nowhere, engine.DefaultMinPuzzleBits, engine.DefaultMaxPuzzleBits)
					if err != nil {
						t.Fatal(err)
					}
					if work < float64(int(1)<<bits) {
						break
					}
					work -= float64(int(1) << bits)
					joined++
					r.enter("shop")
				}
				time.Sleep(time.Second)
			}
			got := float64(joined) / seconds
			t.Logf("%.0f hashes a second: %.2f joins a second, %.0f %% of the places", test.hashes, got, 100*got/(got+1))
			if got > 1.5*test.joins || got < test.joins/1.5 {
				t.Errorf("%.0f hashes a second: %.2f joins a second, want about %v", test.hashes, got, test.joins)
			}
		})
	}
}
