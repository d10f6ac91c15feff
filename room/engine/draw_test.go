package engine

import (
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

func anyTime(t *rapid.T, name string) time.Time {
	return time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, name)).UTC()
}

func anyLasting(low, high time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(low.Milliseconds(), high.Milliseconds()).Draw(t, "ms")) * time.Millisecond
	})
}

// anySettings draws valid settings: what policies read of them.
func anySettings(t *rapid.T) room.Settings {
	const least, day = 100 * time.Millisecond, 24 * time.Hour
	s := room.Settings{
		Mode:         rapid.SampledFrom([]room.Mode{room.Teller, room.Park}).Draw(t, "mode"),
		ClaimWindow:  anyLasting(least, 10*time.Minute).Draw(t, "claim"),
		AbandonAfter: anyLasting(least, day).Draw(t, "abandon"),
		Grace:        anyLasting(-2*time.Millisecond, day).Draw(t, "grace"),
		MaxWaiting:   rapid.Int64Range(0, room.MaxVisitors).Draw(t, "max waiting"),
	}
	if s.Mode == room.Teller {
		s.Capacity = rapid.Int64Range(1, room.MaxVisitors).Draw(t, "capacity")
		s.PassTTL = anyLasting(least, 7*day).Draw(t, "ttl")
	} else {
		s.Batch = rapid.Int64Range(1, room.MaxVisitors).Draw(t, "batch")
		s.Interval, s.Stay = anyLasting(least, day).Draw(t, "interval"), anyLasting(least, 7*day).Draw(t, "stay")
	}
	if rapid.Bool().Draw(t, "scheduled") {
		s.OpensAt = anyTime(t, "opens")
		s.EndsAt = s.OpensAt.Add(anyLasting(time.Millisecond, 7*day).Draw(t, "until the end"))
		s.Method = rapid.SampledFrom([]room.Method{room.FIFO, room.Lottery}).Draw(t, "method")
	}
	return s
}
