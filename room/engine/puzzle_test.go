package engine

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/puzzle"
)

func testPuzzle() Puzzle {
	return Puzzle{Bits: MinPuzzleBits, Made: keyTime.Truncate(time.Second), Nonce: [8]byte{1, 2}, Client: [4]byte{3}}
}

func TestPuzzleText(t *testing.T) {
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	text := ring.SignPuzzle(r, testPuzzle())
	got, ok := ring.ParsePuzzle(r, text)
	if want := testPuzzle(); !ok || !got.Made.Equal(want.Made) || got.Bits != want.Bits || got.Nonce != want.Nonce || got.Client != want.Client {
		t.Fatalf("it became %+v, %v", got, ok)
	}
	if len(text) != 51 { // a block of SHA-256 has room for 55; proof.js relies on it
		t.Errorf("%s has %d bytes", text, len(text))
	}
	if _, err := ring.ParseTicket(r, text); err == nil {
		t.Error("it is a ticket too")
	}
	for name, test := range map[string]struct {
		ring *Keyring
		room *Room
		text string
	}{
		"another room":        {ring, testRoom("shops", "generation"), text},
		"the room made again": {ring, testRoom("shop", "generation2"), text},
		"an unknown key":      {testRing(t, testKey(1)), r, text},
		"empty":               {ring, r, ""},
		"cut":                 {ring, r, text[:50]},
		"a line end":          {ring, r, text + "\n"},
		"a ticket":            {ring, r, ring.SignTicket(r, Ticket{Number: 1, Client: [4]byte{1}})},
	} {
		if _, ok := test.ring.ParsePuzzle(test.room, test.text); ok {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestProofs(t *testing.T) {
	text := testRing(t, testKey(1)).SignPuzzle(testRoom("shop", "generation"), testPuzzle())
	const bits = 12
	good := puzzle.Solve(text, bits)
	numbers := strings.Split(good, ".")
	swapped := append([]string{numbers[1], numbers[0]}, numbers[2:]...)
	for name, test := range map[string]struct {
		proof string
		ok    bool
	}{
		"solved":        {good, true},
		"empty":         {"", false},
		"a number less": {strings.Join(numbers[1:], "."), false},
		"one more":      {good + ".0", false},
		"one twice":     {strings.Join(append(numbers[:15:15], numbers[0]), "."), false},
		"swapped":       {strings.Join(swapped, "."), false},
		"too high":      {strings.Replace(good, numbers[0]+".", "4294967296.", 1), false},
		"no number":     {strings.Replace(good, numbers[0]+".", "-1.", 1), false},
		"long":          {strings.Replace(good, numbers[0]+".", strings.Repeat("0", 200)+numbers[0]+".", 1), false},
	} {
		if ok := proves(text, bits, test.proof); ok != test.ok {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

// A puzzle has a bit more when twice as many join, within the bounds, and never fewer
// when more join.
func TestPuzzleBits(t *testing.T) {
	for _, test := range []struct {
		join, letIn float64
		want        int
	}{
		{0, 0, 14}, {0, 10, 14}, {10, 10, 14}, {14, 10, 14}, {15, 10, 15}, {20, 10, 15}, {40, 10, 16}, {640, 10, 20}, {1e9, 10, 20}, {1, 0, 20}, {math.Inf(1), 1, 20},
	} {
		if got := puzzleBits(test.join, test.letIn, 14, 20); got != test.want {
			t.Errorf("%v join, %v are let in: %d bits, want %d", test.join, test.letIn, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		join, more := rapid.Float64Range(0, 1e6).Draw(t, "join"), rapid.Float64Range(0, 1e6).Draw(t, "more")
		letIn := rapid.Float64Range(0, 1e6).Draw(t, "let in")
		least := rapid.IntRange(MinPuzzleBits, MaxPuzzleBits).Draw(t, "least")
		most := rapid.IntRange(least, MaxPuzzleBits).Draw(t, "most")
		few, many := puzzleBits(join, letIn, least, most), puzzleBits(join+more, letIn, least, most)
		if few < least || many < few || many > most {
			t.Fatalf("%d and %d", few, many)
		}
	})
}

// The rate of a room is what it lets in for good: filling free slots is none.
func TestPressure(t *testing.T) {
	teller := tellerRoom(func(r *Room) { r.Settings.Capacity, r.Settings.PassTTL = 200, 10*time.Minute })
	park := parkRoom(func(r *Room) { r.Settings.Batch, r.Settings.Interval = 100, time.Minute })
	for name, test := range map[string]struct {
		room        *Room
		flow        Flow
		join, letIn float64
	}{
		"nothing is known":       {teller, Flow{}, 0, 1. / 3},
		"an empty room is taken": {teller, Flow{Over: 10 * time.Second, Entered: 200, Called: 200, Inside: 200}, 20, 1. / 3},
		"short visits":           {teller, Flow{Over: time.Minute, Entered: 300, Called: 300}, 5, 5},
		"no-shows":               {teller, Flow{Over: time.Minute, Entered: 1200, Called: 1200, NoShows: 1200}, 20, 1. / 3},
		"a moment":               {teller, Flow{Over: time.Millisecond, Entered: 5}, 1, 1. / 3},
		"a park":                 {park, Flow{Over: time.Minute, Entered: 1200}, 20, 100. / 60},
	} {
		if join, letIn := pressure(test.room, test.flow); join != test.join || math.Abs(letIn-test.letIn) > 1e-9 {
			t.Errorf("%s: %v join, %v are let in; want %v, %v", name, join, letIn, test.join, test.letIn)
		}
	}
}

// With more puzzles than are remembered, the oldest is forgotten first.
func TestSolvedPuzzlesAreBounded(t *testing.T) {
	solved := newSolvedPuzzles(2)
	for _, test := range []struct {
		nonce byte
		fresh bool
	}{{1, true}, {1, false}, {2, true}, {3, true}, {3, false}, {2, false}, {1, true}} {
		if got := solved.add([8]byte{test.nonce}); got != test.fresh {
			t.Errorf("%d is new: %v", test.nonce, got)
		}
	}
}

func FuzzPuzzle(f *testing.F) {
	ring, r := testRing(f, testKey(1)), testRoom("shop", "generation")
	text := ring.SignPuzzle(r, testPuzzle())
	f.Add(text, puzzle.Solve(text, MinPuzzleBits))
	f.Add(text, strings.Repeat(".", PuzzleParts-1))
	f.Add("", "1.2")
	f.Fuzz(func(t *testing.T, text, proof string) {
		p, ok := ring.ParsePuzzle(r, text)
		if ok && ring.SignPuzzle(r, p) != text {
			t.Fatalf("%q is %+v", text, p)
		}
		if proves(text, MaxPuzzleBits, proof) {
			t.Fatalf("%q solves %q", proof, text)
		}
	})
}
