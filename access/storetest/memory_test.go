package storetest_test

import (
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open:  func(testing.TB) access.Store { return &storetest.Memory{} },
		Again: func(_ testing.TB, store access.Store) access.Store { return store },
	})
}
