package spelling_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"retention.ms", "retention.bytes", "cleanup.policy"}
	for _, test := range []struct {
		word, want string
		distance   int
	}{
		{"retention.ms", "retention.ms", 0},
		{"retention.m", "retention.ms", 1},
		{"retension.bytes", "retention.bytes", 1},
		{"cleanuppolicy", "cleanup.policy", 1},
		{"", "retention.ms", 12},
	} {
		if got, distance := spelling.Nearest(test.word, names); got != test.want || distance != test.distance {
			t.Errorf("Nearest(%q) = %q at %d, want %q at %d", test.word, got, distance, test.want, test.distance)
		}
	}
	if got, distance := spelling.Nearest("any", nil); got != "" || distance != 0 {
		t.Errorf("nearest of none: %q at %d", got, distance)
	}
}

// A word with one byte changed, taken out or put in is at distance 1 at most, and
// the distance is the same both ways.
func TestDistance(t *testing.T) {
	word := rapid.StringMatching(`[a-z.]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		_, there := spelling.Nearest(a, []string{b})
		_, back := spelling.Nearest(b, []string{a})
		if there != back || (there == 0) != (a == b) || there > max(len(a), len(b)) {
			t.Fatalf("from %q to %q it is %d, back %d", a, b, there, back)
		}
		at := rapid.IntRange(0, len(a)-1).Draw(t, "at")
		for _, changed := range []string{a[:at] + "#" + a[at+1:], a[:at] + a[at+1:], a[:at] + "#" + a[at:]} {
			if _, distance := spelling.Nearest(a, []string{changed}); distance != 1 {
				t.Fatalf("from %q to %q it is %d, want 1", a, changed, distance)
			}
		}
	})
}
