//go:build redis

package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/redisstore"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	open := func(t testing.TB, key string) *instance {
		store, err := redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Key: key, CallTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() }) // it never fails
		return &instance{store, key}
	}
	var places atomic.Int64
	storetest.Run(t, storetest.Harness{
		Open:  func(t testing.TB) access.Store { return open(t, fmt.Sprint("test", places.Add(1))) },
		Again: func(t testing.TB, store access.Store) access.Store { return open(t, store.(*instance).key) },
	})
}

// instance is one of several of a key.
type instance struct {
	*redisstore.Store
	key string
}
