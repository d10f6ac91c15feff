package metastore_test

import (
	"log/slog"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/metastore"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/topic/filestore"
)

// The metadata of nodes promises the same as that of one server: topic/storetest checks it.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) access.Store {
			store, err := filestore.Open(t.TempDir(), filestore.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
			return metastore.New(store.Meta())
		},
		Again: func(_ testing.TB, store access.Store) access.Store { return store },
	})
}
