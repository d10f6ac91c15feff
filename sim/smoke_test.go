package sim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store, err := pebblestore.Open("x", pebblestore.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		mux := bulk.NewMux()
		e, err := bulk.New(store, mux, bulk.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{"a", "b", "c"} {
			if err := e.Set(ctx, bulk.SettingsChange{Name: tenant, Tenant: &bulk.Tenant{RequestsPerSecond: 10}}); err != nil {
				t.Fatal(err)
			}
			a, _, err := e.Create(ctx, bulk.Spec{Tenant: tenant, Type: "echo", Aggregate: []string{"count", "sum:n"}})
			if err != nil {
				t.Fatal(err)
			}
			for off := 0; off < 5000; off += 1000 {
				var ps [][]byte
				for i := range 1000 {
					ps = append(ps, fmt.Appendf(nil, `{"n":"%d.25"}`, i))
				}
				if _, err := e.Append(ctx, a.ID, int64(off), ps); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := e.Seal(ctx, a.ID, 5000); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for {
			as, err := e.Actions(ctx, bulk.ActionFilter{Unfinished: true})
			if err != nil {
				t.Fatal(err)
			}
			if len(as) == 0 {
				break
			}
			time.Sleep(100*time.Millisecond)
		}
		as, _ := e.Actions(ctx, bulk.ActionFilter{})
		for _, a := range as {
			t.Logf("%s %s %+v %s", a.Tenant, a.Status, a.Counts, a.Result)
		}
		t.Log(time.Since(began), e.Fairness())
		if err := e.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
