//go:build redis

package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestAQuotaHoldsOverInstances: one instance sets it, and others that have not asked for settings since
// refuse by it. A refused id leaves nothing in the hub.
func TestAQuotaHoldsOverInstances(t *testing.T) {
	url := redistest.Start(t, redistest.Options{}).URL()
	one, other := open(t, Options{URL: url}), open(t, Options{URL: url})
	if err := one.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{MaxActions: 2, MaxJobs: 10}}); err != nil {
		t.Fatal(err)
	}
	upload(t, one, bulk.Spec{ID: "a", Tenant: "t", Type: "work"}, 6)
	upload(t, other, bulk.Spec{ID: "b", Tenant: "t", Type: "work"}, 4)
	var refused *bulk.QuotaError
	for _, s := range []*Store{one, other} {
		if received, err := s.Append(t.Context(), "a", 6, payloads(6, 1)); !errors.As(err, &refused) || refused.Quota != bulk.MaxJobsQuota || received != 6 {
			t.Errorf("one job too many: %d received, %v", received, err)
		}
		for range 2 { // the second call has the number that was refused, or another one
			if _, _, err := s.Create(t.Context(), bulk.Spec{ID: "c", Tenant: "t", Type: "work"}); !errors.As(err, &refused) || refused.Quota != bulk.MaxActionsQuota {
				t.Errorf("one action too many: %v", err)
			}
		}
	}
	for key, count := range map[string]rueidis.Completed{
		"ids": one.db.B().Hlen().Key(one.hub + "ids").Build(), "claims": one.db.B().Hlen().Key(one.hub + "claims").Build(),
		"order": one.db.B().Zcard().Key(one.hub + "order").Build(),
	} {
		want := map[string]int64{"ids": 2, "order": 2}[key]
		if n, err := ask(t.Context(), one, count, asInt); err != nil || n != want {
			t.Errorf("%s has %d entries, %v; want %d", key, n, err, want)
		}
	}
}

// TestARefusedNumberStaysRefused: a call that got its number before another call with the same id was
// refused makes no action of it, which would have no id.
func TestARefusedNumberStaysRefused(t *testing.T) {
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL()})
	set := func(most int64) {
		if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{MaxActions: most}}); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	upload(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "work"}, 0)
	spec := bulk.Spec{ID: "b", Tenant: "t", Type: "work"}
	prefix, name := s.shards[s.shardOf("t")]+"n:", ""
	for kept := int64(0); kept == 0; { // until one that has not expired is kept
		if _, _, err := s.Create(t.Context(), spec); err == nil {
			t.Fatal("the action beyond the quota was created")
		}
		for _, name = range keysLike(t, s, "n:*") {
			var err error
			if kept, err = ask(t.Context(), s, s.db.B().Persist().Key(name).Build(), asInt); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(2)
	n, err := strconv.ParseUint(strings.TrimPrefix(name, prefix), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if created, err := s.make(t.Context(), n, `{"id":"b","tenant":"t","type":"work"}`); created || !errors.As(err, new(*bulk.QuotaError)) {
		t.Errorf("with a refused number: %v, %v; want it refused", created, err)
	}
	if _, created, err := s.Create(t.Context(), spec); err != nil || !created {
		t.Errorf("with another number: %v, %v; want it created", created, err)
	}
}

// TestActionsOfAnEarlierVersionCount from their next upload on, and no count falls below 0.
func TestActionsOfAnEarlierVersionCount(t *testing.T) {
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL()})
	upload(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "work"}, 4)
	upload(t, s, bulk.Spec{ID: "b", Tenant: "t", Type: "work"}, 4)
	// The earlier version has the same objects, without these fields.
	for _, name := range slices.Concat(keysLike(t, s, "a:*"), keysLike(t, s, "t:*")) {
		forget := `local o = cjson.decode(redis.call('GET', KEYS[1]))
if o.users then o.jobs, o.bytes = nil, nil else o.counted = nil end
redis.call('SET', KEYS[1], cjson.encode(o))
return 1`
		if err := s.db.Do(t.Context(), s.db.B().Eval().Script(forget).Numkeys(1).Key(name).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{MaxJobs: 6}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} { // 5 and 6 of a; b is not counted
		received, err := s.Append(t.Context(), "a", bulk.AtEnd, payloads(0, 1))
		if (err == nil) != want {
			t.Errorf("upload %d: %d received, %v", i, received, err)
		}
	}
	for _, id := range []string{"b", "a"} {
		if _, err := s.Transition(t.Context(), id, bulk.Transition{Kind: bulk.Cancel}); err != nil {
			t.Fatal(err)
		}
	}
	upload(t, s, bulk.Spec{ID: "c", Tenant: "t", Type: "work"}, 6)
	if _, err := s.Append(t.Context(), "c", 6, payloads(6, 1)); !errors.As(err, new(*bulk.QuotaError)) {
		t.Errorf("the seventh job: %v", err)
	}
}

// compareStored checks that each tenant counts the jobs of its unfinished actions.
func (b *imported) compareStored() {
	s := b.here.(*Store)
	want := map[string]bulk.Stored{}
	live, err := s.Actions(b.t.Context(), bulk.ActionFilter{Unfinished: true})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range live {
		want[a.Tenant] = want[a.Tenant].Add(bulk.Stored{Actions: 1, Jobs: a.Received})
	}
	for tenant, stored := range want {
		counts, err := s.StoredOf(b.t.Context(), []string{tenant})
		if has := counts[tenant]; err != nil || has.Actions != stored.Actions || has.Jobs != stored.Jobs {
			b.t.Fatalf("tenant %s counts %+v, %v; want %+v", tenant, has, err, stored)
		}
	}
}

// keysLike returns the keys of all shards that match a pattern.
func keysLike(t *testing.T, s *Store, pattern string) (names []string) {
	t.Helper()
	for _, base := range s.shards {
		some, err := ask(t.Context(), s, s.db.B().Keys().Pattern(fmt.Sprint(base, pattern)).Build(), asTexts)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, some...)
	}
	return names
}
