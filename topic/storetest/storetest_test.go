package storetest

import (
	"testing"

	"github.com/sluice-project/sluice/topic"
)

func memoryFactory() Factory {
	return Factory{
		Open: func(testing.TB) topic.Store { return NewMemory() },
		Reopen: func(t testing.TB, s topic.Store) topic.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return s.(*Memory).Reopen()
		},
		Crash: func(_ testing.TB, s topic.Store) topic.Store { return s.(*Memory).Reopen() },
	}
}

// TestMemory runs the suite against the store in memory.
func TestMemory(t *testing.T) { Run(t, memoryFactory()) }
