package access

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The parts of a rate are at most all of it and the headroom. Whoever wants more than they have is not beside somebody with a larger
// part, and then nobody has what nobody wants: all of the rate is used.
func TestSharesOfARate(t *testing.T) {
	for _, test := range []struct{ wants, parts []float64 }{
		{[]float64{0}, []float64{1}},
		{[]float64{1}, []float64{1}},
		{[]float64{1, 1}, []float64{0.5, 0.5}},
		{[]float64{1, 0}, []float64{1, 0.05}},
		{[]float64{1, 0.2, 1}, []float64{0.4, 0.25, 0.4}},
		{[]float64{0.2, 0.4}, []float64{0.4, 0.6}},
		{[]float64{0, 0, 0, 0}, []float64{0.25, 0.25, 0.25, 0.25}},
	} {
		for i, part := range shares(test.wants) {
			if part < test.parts[i]-1e-9 || part > test.parts[i]+1e-9 {
				t.Errorf("who want %v have %v, want %v", test.wants, shares(test.wants), test.parts)
				break
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		wants := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 0.5, 1})), 1, 9).Draw(t, "wants")
		parts := shares(wants)
		sum, used := 0.0, 0.0
		for i, part := range parts {
			sum, used = sum+part, used+min(part, wants[i])
			if part < wants[i]-1e-9 && part < slices.Max(parts)-headroom-1e-9 {
				t.Errorf("of %v, %v has %v, and another has more: %v", wants, wants[i], part, parts)
			}
		}
		all := 0.0
		for _, want := range wants {
			all += want
		}
		if sum > 1+headroom+1e-9 || sum < 1-1e-9 || used < min(1, all)-1e-9 {
			t.Errorf("who want %v have %v: %v in all, of which %v is wanted", wants, parts, sum, used)
		}
	})
}
