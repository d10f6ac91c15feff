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
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	open := func(t testing.TB, key string) *instance { return &instance{openAt(t, server, key), key} }
	var places atomic.Int64
	storetest.Run(t, storetest.Harness{
		Open:  func(t testing.TB) access.Store { return open(t, fmt.Sprint("test", places.Add(1))) },
		Again: func(t testing.TB, store access.Store) access.Store { return open(t, store.(*instance).key) },
	})
}

// openAt opens a store at a server, until the test ends.
func openAt(t testing.TB, server *redistest.Server, key string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Key: key, CallTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // it never fails
	return store
}

// instance is one of several of a key.
type instance struct {
	*redisstore.Store
	key string
}

func TestInstancesHearOfEachOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	var all [3]access.Exchange
	for i := range all {
		all[i] = openAt(t, server, "told")
	}
	storetest.RunExchange(t, all)
	until.True(t, "what was told ends by itself", func() bool { return server.Cli("DBSIZE") == "0" })
}
