package room_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/puzzle"
	"github.com/sluice-project/sluice/room"
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
	inVirtualTime(t, func(t *testing.T, r *rig) {
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
		solves(false, "shop", home, text, "1"+proof)
		solves(true, "shop", home, text, proof)
		solves(false, "shop", home, text, proof)
		text, proof, _ = r.puzzle("shop", nowhere)
		time.Sleep(room.PuzzleTime - 5*time.Second)
		r = r.restarted()
		solves(true, "shop", nowhere, text, proof)
		text, proof, _ = r.puzzle("shop", home)
		time.Sleep(room.PuzzleTime + 2*time.Second)
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
	inVirtualTime(t, func(t *testing.T, r *rig) {
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
