package bulk

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// allowedUpTo returns floor((index+1) · perWindow), exactly; perWindow is in millionths of an
// attempt.
func allowedUpTo(index, perWindow int64) int64 {
	product := new(big.Rat).Mul(new(big.Rat).SetInt64(index+1), big.NewRat(perWindow, budgetScale))
	// Div rounds down, as the denominator is positive.
	return new(big.Int).Div(product.Num(), product.Denom()).Int64()
}

func TestBudgetAddsUpToTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(100, 60_000).Draw(t, "window_ms")) * time.Millisecond
		perWindow := rapid.OneOf(
			rapid.Int64Range(1, 3*budgetScale),
			rapid.Int64Range(1, 1_000_000*budgetScale),
		).Draw(t, "millionths per window")
		rate := float64(perWindow) / budgetScale / window.Seconds()
		first := rapid.OneOf(
			rapid.Just(int64(0)),
			rapid.Int64Range(-2*budgetScale, 2*budgetScale),
			rapid.Int64Range(-20_000_000_000, 20_000_000_000),
		).Draw(t, "first window")
		var sum int64
		for i := range rapid.Int64Range(1, 300).Draw(t, "windows") {
			budget := Budget(rate, window, first+i)
			if low := perWindow / budgetScale; budget < low || budget > low+1 {
				t.Fatalf("window %d allows %d, want %d or one more", first+i, budget, low)
			}
			sum += budget
			if want := allowedUpTo(first+i, perWindow) - allowedUpTo(first-1, perWindow); sum != want {
				t.Fatalf("windows %d to %d allow %d, want %d", first, first+i, sum, want)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   float64
		window time.Duration
		want   []int64 // of windows 0, 1, 2, …
	}{
		{"a whole number of attempts", 10, time.Second, []int64{10, 10, 10}},
		{"a fraction is carried over", 2.5, time.Second, []int64{2, 3, 2, 3}},
		{"a third is carried over", 1.0 / 3, time.Second, []int64{0, 0, 0, 1, 0, 0, 1, 0, 0, 1}},
		{"a short window has its part of a second", 10, 100 * time.Millisecond, []int64{1, 1, 1}},
		{"less than one attempt in a window", 4, 100 * time.Millisecond, []int64{0, 0, 1, 0, 1, 0, 0, 1, 0, 1}},
		{"a long window has many seconds", 0.5, time.Minute, []int64{30, 30}},
		{"no limit", 0, time.Second, []int64{NoLimit, NoLimit}},
		{"no limit either", -1, time.Second, []int64{NoLimit}},
		{"more than can be counted", math.MaxFloat64, time.Minute, []int64{NoLimit}},
		{"infinitely many", math.Inf(1), time.Second, []int64{NoLimit}},
	} {
		for i, want := range c.want {
			if got := Budget(c.rate, c.window, int64(i)); got != want {
				t.Errorf("%s: window %d of %g per second: %d, want %d", c.name, i, c.rate, got, want)
			}
		}
	}
}

func TestWindowStartAndIndexAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(time.Minute)).Draw(t, "window"))
		now := time.Unix(0, rapid.Int64Range(-1<<61, 1<<61).Draw(t, "now"))
		index := WindowIndex(now, window)
		start, end := WindowStart(index, window), WindowStart(index+1, window)
		if now.Before(start) || !now.Before(end) || end.Sub(start) != window {
			t.Fatalf("%s is not in window %d, from %s to %s", now, index, start, end)
		}
		if at := WindowIndex(start, window); at != index {
			t.Fatalf("window %d begins in window %d", index, at)
		}
		if before := WindowIndex(start.Add(-1), window); before != index-1 {
			t.Fatalf("window %d follows window %d", index, before)
		}
	})
}

// TestNextBudget compares NextBudget with the budgets.
func TestNextBudget(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.001, 0.3, 1, 2.5, 100, 0} {
		for _, pacing := range []Pacing{PaceWindow, PaceSmooth} {
			l := Limit{RequestsPerSecond: rate, Pacing: pacing}
			for _, index := range []int64{-7, 0, 3, 999_990, 70_000_000_123} {
				next := l.NextBudget(time.Second, index, 1)
				for i := index + 1; i < next; i++ {
					if l.Budget(time.Second, i) > 0 {
						t.Fatalf("%+v: the next window after %d is %d, but %d allows attempts", l, index, next, i)
					}
				}
				if l.Budget(time.Second, next) == 0 {
					t.Errorf("%+v: the next window after %d is %d, which allows nothing", l, index, next)
				}
				if rate == 0 {
					continue
				}
				for _, needed := range []int64{2, 7, 250, 1e9} {
					next := l.NextBudget(time.Second, index, needed)
					if next == index+1e6 { // it goes no further
						continue
					}
					by, before := l.Budgets(time.Second, index+1, next-index), l.Budgets(time.Second, index+1, next-index-1)
					if by < needed || before >= needed {
						t.Errorf("%+v: by window %d after %d, %d are allowed, and %d by the one before; want the first %d", l, next, index, by, before, needed)
					}
				}
			}
		}
	}
}
