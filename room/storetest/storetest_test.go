package storetest

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// memoryHarness returns the harness of a Memory: in a bubble, or with a clock that is moved, as a
// server's.
func memoryHarness(bubble bool) Harness {
	return Harness{Bubble: bubble, Open: func(testing.TB) Opened {
		m := NewMemory()
		opened := Opened{Store: m, Reopen: func() room.Store { m = m.Reopen(); return m }}
		if !bubble {
			opened.Advance = func(d time.Duration) { m.Shift(d) }
		}
		return opened
	}}
}

// ways are the two ways in which time passes.
var ways = map[string]bool{"in a bubble": true, "by moving the clock": false}

func TestMemory(t *testing.T) {
	for way, bubble := range ways {
		t.Run(way, func(t *testing.T) { Run(t, memoryHarness(bubble)) })
	}
}

func TestMemoryAgainstItself(t *testing.T) {
	for way, bubble := range ways {
		t.Run(way, func(t *testing.T) { RunModel(t, memoryHarness(bubble)) })
	}
}

func TestMemoryConcurrently(t *testing.T) {
	for way, bubble := range ways {
		t.Run(way, func(t *testing.T) { RunConcurrent(t, memoryHarness(bubble)) })
	}
}
