package brokers

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParsePlace(t *testing.T) {
	now := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]Place{
		"start": {Kind: AtStart}, "end": {Kind: atEnd}, "0": {Kind: AtOffset}, "42": {Kind: AtOffset, offset: 42},
		"10m": {Kind: atTime, at: now.Add(-10 * time.Minute)}, "2026-11-27T08:00:00Z": {Kind: atTime, at: now.Add(-24 * time.Hour)},
	} {
		if got, err := ParsePlace(text, now); err != nil || got.Kind != want.Kind || got.offset != want.offset || !got.at.Equal(want.at) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "-10m", "Start", "yesterday", "9223372036854775808"} {
		if got, err := ParsePlace(text, now); err == nil {
			t.Errorf("%q is %+v, want an error", text, got)
		}
	}
}

// A shift stays within the extent, and is exact unless it is cut.
func TestShift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		has := Extent{Start: rapid.Int64Range(0, 1000).Draw(t, "start")}
		has.End = has.Start + rapid.Int64Range(0, 1000).Draw(t, "length")
		from := rapid.Int64Range(0, 3000).Draw(t, "from")
		by := rapid.OneOf(rapid.Int64Range(-2000, 2000), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})).Draw(t, "by")
		got, begin := has.Shift(from, by), has.clamp(from)
		if got < has.Start || got > has.End {
			t.Fatalf("%d is outside of %+v", got, has)
		}
		if by > -5000 && by < 5000 && got != has.clamp(begin+by) {
			t.Fatalf("from %d by %d: %d, want %d", from, by, got, has.clamp(begin+by))
		}
	})
}
