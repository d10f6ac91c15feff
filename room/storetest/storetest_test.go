package storetest

import (
	"testing"

	"github.com/sluice-project/sluice/room"
)

func memoryHarness() Harness {
	return Harness{Bubble: true, Open: func(testing.TB) Opened {
		m := NewMemory()
		return Opened{Store: m, Reopen: func() room.Store { m = m.Reopen(); return m }}
	}}
}

func TestMemory(t *testing.T) { Run(t, memoryHarness()) }

func TestMemoryAgainstItself(t *testing.T) { RunModel(t, memoryHarness()) }
