package engine

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestJainIndex(t *testing.T) {
	for _, c := range []struct {
		counts []float64
		want   float64
	}{
		{nil, 1},
		{[]float64{0, 0}, 1},
		{[]float64{7}, 1},
		{[]float64{10, 10, 10}, 1},
		{[]float64{1, 0, 0, 0}, 0.25},
		{[]float64{3, 1}, 16.0 / 20},
		{[]float64{1e300, 1e300}, 1},
		{[]float64{5e-324, 0}, 0.5},
	} {
		if got := JainIndex(c.counts); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("JainIndex(%v) = %v, want %v", c.counts, got, c.want)
		}
	}
}

func TestJainIndexIsBoundedAndWithoutUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 50).Draw(t, "counts")
		unit := rapid.Float64Range(1e-3, 1e3).Draw(t, "unit")
		index := JainIndex(counts)
		if n := float64(len(counts)); index < 1/n-1e-9 || index > 1+1e-9 {
			t.Fatalf("index %v of %v counts", index, n)
		}
		scaled := make([]float64, len(counts))
		for i := range counts {
			scaled[i] = counts[i] * unit
		}
		if other := JainIndex(scaled); math.Abs(index-other) > 1e-9 {
			t.Fatalf("index %v, in another unit %v", index, other)
		}
	})
}

func TestFairnessRecorder(t *testing.T) {
	one := func(completed int64) windowTenant { return windowTenant{completed: completed, backlogged: true} }
	idle := windowTenant{completed: 100}
	for _, c := range []struct {
		name    string
		windows [][]windowTenant
		want    Fairness
	}{
		{"no window", nil, Fairness{}},
		{"one backlogged tenant is not compared", [][]windowTenant{{one(5), idle}}, Fairness{}},
		{"nothing completed", [][]windowTenant{{one(0), one(0)}}, Fairness{}},
		{"a tenant that was idle for a while is left out", [][]windowTenant{{one(5), one(5), idle}}, Fairness{1, 1}},
		{"mean over windows", [][]windowTenant{{one(5), one(5)}, {one(5)}, {one(4), one(0)}}, Fairness{0.75, 2}},
		{"by weight", [][]windowTenant{{
			{completed: 30, weight: 3, backlogged: true},
			{completed: 10, weight: 1, backlogged: true},
			one(10),
		}}, Fairness{1, 1}},
	} {
		var r fairnessRecorder
		for _, window := range c.windows {
			r.observe(window)
		}
		if got := r.fairness(); math.Abs(got.Jain-c.want.Jain) > 1e-12 || got.Windows != c.want.Windows {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
