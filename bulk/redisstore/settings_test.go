//go:build redis

package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestASetCostsWhatItChanges counts the bytes of a Set, and of another instance that learns of it,
// beside 1,000 other settings.
func TestASetCostsWhatItChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	p, others := newProxy(t, server.Addr()), newProxy(t, server.Addr())
	s := open(t, Options{URL: p.url(), Shards: 3})
	fields := s.db.B().Hset().Key(s.hub + "settings").FieldValue()
	for n := range 1000 {
		fields = fields.FieldValue(fmt.Sprint(settingTenant, "many", n), `{"weight":2,"requests_per_second":7}`)
	}
	if err := s.send(t.Context(), []rueidis.Completed{fields.Build()}); err != nil {
		t.Fatal(err)
	}
	if _, err := onHub(t.Context(), s, setScript, asInt, settingType+"echo", `{"concurrency":3}`, "1"); err != nil {
		t.Fatal(err)
	}
	other := open(t, Options{URL: others.url()})
	for _, s := range []*Store{s, other} { // the server knows all scripts
		if err := s.Set(t.Context(), bulk.SettingsChange{Name: "first", Tenant: &bulk.Tenant{Weight: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]bulk.SettingsChange{
		"tenant": {Name: "many7", Tenant: &bulk.Tenant{RequestsPerSecond: 5}},
		"target": {Name: "host", Target: &bulk.TargetLimits{Concurrency: 5}},
		"type":   {Name: "echo", Type: &bulk.TypeLimits{RequestsPerSecond: 5}},
		"limits": {Limits: &bulk.Limits{RequestsPerSecond: 5}},
	} {
		before, before2 := p.carried.Load(), others.carried.Load()
		if err := s.Set(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if n := p.carried.Load() - before; n > 3000 {
			t.Errorf("%s: a Set takes %d bytes", name, n)
		}
		settings, err := other.Settings(t.Context())
		if err != nil || len(settings.Tenants) != 1001 {
			t.Fatalf("%d tenants have settings, %v", len(settings.Tenants), err)
		}
		if n := others.carried.Load() - before2; n > 1000 {
			t.Errorf("%s: another instance reads %d bytes to learn of it", name, n)
		}
	}
	settings, err := other.Settings(t.Context())
	if err != nil || settings.Tenants["many7"].RequestsPerSecond != 5 || settings.Limits.RequestsPerSecond != 5 ||
		settings.Targets["host"].Concurrency != 5 || settings.Types["echo"].RequestsPerSecond != 5 {
		t.Errorf("the other instance has %+v, %v", settings, err)
	}
	allKnow(t, s)
}

// TestLayers checks that a map that is never changed has what a map would have.
func TestLayers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		changes := rapid.SliceOf(rapid.MapOf(rapid.StringMatching("[a-f]{1,2}"), rapid.Int())).Draw(t, "changes")
		want, kept := map[string]int{}, map[string]int{}
		var l, old layers[int]
		for i, change := range changes {
			if i == len(changes)/2 {
				old, kept = l, maps.Clone(want)
			}
			l = l.with(change)
			maps.Copy(want, change)
		}
		for name, v := range want {
			if got, is := l.get(name); got != v || !is {
				t.Fatalf("%s is %d, want %d", name, got, v)
			}
		}
		if _, is := l.get("none"); is || !maps.Equal(l.flat(), want) || !maps.Equal(maps.Collect(l.all()), want) {
			t.Fatalf("%v and %v, want %v", l.flat(), maps.Collect(l.all()), want)
		}
		if !maps.Equal(old.flat(), kept) {
			t.Fatalf("an earlier one has changed to %v, it was %v", old.flat(), kept)
		}
	})
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	rapid.TB
	Context() context.Context
}

// allKnow checks that every shard and the hub know the newest settings.
func allKnow(t tester, s *Store) {
	t.Helper()
	hub := hash(t, s, s.hub+"settings")
	if hub["pushed"] != hub["revision"] {
		t.Fatalf("revision %s of the settings is not known to all: %s is", hub["revision"], hub["pushed"])
	}
	for shard := range s.shards {
		if got := hash(t, s, s.shards[shard]+"limits")["revision"]; got != hub["revision"] {
			t.Fatalf("shard %d knows revision %s, want %s", shard, got, hub["revision"])
		}
	}
	whoKnowsIsRight(t, s)
}

// whoKnowsIsRight checks that shards with the hub's revision have exactly what it has.
func whoKnowsIsRight(t tester, s *Store) {
	t.Helper()
	hub := hash(t, s, s.hub+"settings")
	values, err := settings{shortest: s.config.Window}.with(hub, s.config.Window)
	if err != nil {
		t.Fatal(err)
	}
	for shard, base := range s.shards {
		limits, weights := hash(t, s, base+"limits"), hash(t, s, base+"weights")
		if limits["revision"] != hub["revision"] {
			continue
		}
		want := map[string]map[string]string{"l": {"revision": hub["revision"]}, "w": {}}
		for arg := range slices.Chunk(s.limitArgs(&values, 0, shard)[2:], 3) {
			want[arg[0]][arg[1]] = arg[2]
		}
		if !maps.Equal(limits, want["l"]) || !maps.Equal(weights, want["w"]) {
			t.Fatalf("shard %d has %v and %v, want %v", shard, limits, weights, want)
		}
	}
}

func hash(t tester, s *Store, key string) map[string]string {
	t.Helper()
	fields, err := ask(t.Context(), s, s.db.B().Hgetall().Key(key).Build(), asMap)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// setOnly stores a setting in the hub, as an instance does that ends before it tells the shards.
// Earlier versions of sluice did not record what has changed.
func setOnly(t tester, s *Store, name string, value any, earlier bool) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := onHub(t.Context(), s, setScript, asInt, name, string(text)); err != nil {
		t.Fatal(err)
	}
	if earlier {
		if err := s.send(t.Context(), []rueidis.Completed{s.db.B().Rpop().Key(s.hub + "changes").Build()}); err != nil {
			t.Fatal(err)
		}
	}
}

// sender returns what sends shards the settings that an instance finds now, without telling the hub.
func sender(t tester, s *Store, all bool) (send func(shard int)) {
	t.Helper()
	values, revision := s.settings.get()
	n, err := onHub(t.Context(), s, newsScript, readNews, number(revision))
	if err != nil {
		t.Fatal(err)
	}
	if n.all {
		values = settings{shortest: s.config.Window}
	}
	if all {
		n.pending = pending{}
	}
	values, err = values.with(n.values, s.config.Window)
	if err != nil {
		t.Fatal(err)
	}
	return func(shard int) {
		t.Helper()
		if _, err := s.pushTo(t.Context(), shard, &values, n.revision, n.pending); err != nil {
			t.Fatal(err)
		}
	}
}

// spread is two instances and three shards, whose settings change in all the ways there are.
type spread struct {
	t      *rapid.T
	stores []*Store
	saved  map[string]bool // shards, and the hub, of which an earlier state is kept
	late   []func()        // messages to shards that are still on their way
}

func (x *spread) store() *Store { return x.stores[rapid.IntRange(0, 1).Draw(x.t, "instance")] }

func (x *spread) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *spread) change() bulk.SettingsChange {
	rate := float64(rapid.IntRange(0, 9).Draw(x.t, "rate"))
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(x.t, "name")
	return rapid.SampledFrom([]bulk.SettingsChange{
		{Name: name, Tenant: &bulk.Tenant{RequestsPerSecond: rate, Weight: 1 + rate}},
		{Name: name, Target: &bulk.TargetLimits{RequestsPerSecond: rate, Pacing: bulk.PaceSmooth}},
		{Name: name, Type: &bulk.TypeLimits{TotalConcurrency: int(rate)}},
		{Limits: &bulk.Limits{RequestsPerSecond: rate}},
	}).Draw(x.t, "change")
}

func (x *spread) set() { x.must(x.store().Set(x.t.Context(), x.change())) }

func (x *spread) load() {
	_, err := x.store().Settings(x.t.Context())
	x.must(err)
}

// die ends an instance after it has told some shards, and not the hub.
func (x *spread) die() {
	s := x.store()
	name, value := settingOf(x.change())
	setOnly(x.t, s, name, value, rapid.Bool().Draw(x.t, "earlier version"))
	send := sender(x.t, s, rapid.Bool().Draw(x.t, "all settings"))
	for shard := range s.shards {
		switch rapid.IntRange(0, 2).Draw(x.t, "sent") {
		case 1:
			send(shard)
		case 2:
			x.late = append(x.late, func() { send(shard) })
		}
	}
}

func (x *spread) arrive() {
	if len(x.late) > 0 {
		i := rapid.IntRange(0, len(x.late)-1).Draw(x.t, "message")
		x.late[i]()
		x.late = slices.Delete(x.late, i, i+1)
	}
}

// keep keeps the state of the hub or of a shard, and lose brings it back: the newest writes are lost.
func (x *spread) keep() { x.copy(x.lost(), "", "kept:") }

func (x *spread) lose() {
	if lost := x.lost(); x.saved[lost[0]] {
		newest, _ := strconv.ParseInt(hash(x.t, x.stores[0], x.stores[0].hub+"settings")["revision"], 10, 64)
		x.copy(lost, "kept:", "")
		// Revisions follow the clock, which has gone on when a replica takes over.
		for now := int64(0); now <= newest; {
			clock, err := x.stores[0].db.Do(x.t.Context(), x.stores[0].db.B().Time().Build()).AsIntSlice()
			x.must(err)
			now = clock[0]*1000 + clock[1]/1000
		}
	}
}

func (x *spread) lost() []string {
	s := x.stores[0]
	if n := rapid.IntRange(-1, 2).Draw(x.t, "lost"); n >= 0 {
		return []string{s.shards[n] + "limits", s.shards[n] + "weights"}
	}
	return []string{s.hub + "settings", s.hub + "changes"}
}

func (x *spread) copy(keys []string, from, to string) {
	s := x.stores[0]
	x.saved[keys[0]] = true
	for _, key := range keys {
		x.must(s.db.Do(x.t.Context(), s.db.B().Del().Key(to+key).Build()).Error())
		x.must(s.db.Do(x.t.Context(), s.db.B().Copy().Source(from+key).Destination(to+key).Build()).Error())
	}
}

// forget makes a shard one that was made again.
func (x *spread) forget() {
	s := x.stores[0]
	base := s.shards[rapid.IntRange(0, 2).Draw(x.t, "shard")]
	x.must(s.db.Do(x.t.Context(), s.db.B().Del().Key(base+"limits", base+"weights").Build()).Error())
}

// TestShardsHaveTheSettings checks that a shard with a revision has exactly the settings of it,
// and that after any Set all shards and instances have all: also if instances have ended half way
// and are of an earlier version, messages come late, and the hub or a shard has lost its newest writes.
func TestShardsHaveTheSettings(t *testing.T) {
	t.Parallel()
	url, run := redistest.Start(t, redistest.Options{}).URL(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		x := &spread{t: rt, saved: map[string]bool{}}
		for range 2 {
			s, err := Open(rt.Context(), Options{URL: url, Prefix: fmt.Sprint("run", run, ":"), Shards: 3, CallTimeout: patient, Bulk: unlimited(), Logger: quiet})
			x.must(err)
			defer func() { _ = s.Close() }()
			x.stores = append(x.stores, s)
		}
		steps := []func(){x.set, x.set, x.set, x.load, x.die, x.die, x.arrive, x.keep, x.lose, x.forget}
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, len(steps)-1), 5, 40).Draw(rt, "steps") {
			steps[step]()
			whoKnowsIsRight(rt, x.stores[0])
		}
		x.set()
		allKnow(rt, x.stores[0])
		for _, s := range x.stores {
			got, err := s.Settings(rt.Context())
			x.must(err)
			values, err := settings{shortest: s.config.Window}.with(hash(rt, s, s.hub+"settings"), s.config.Window)
			x.must(err)
			want := bulk.Settings{Limits: values.limits, Tenants: values.tenants.flat(), Targets: values.targets.flat(), Types: values.types.flat()}
			if !reflect.DeepEqual(got, want) {
				rt.Fatalf("an instance has %+v, want %+v", got, want)
			}
		}
	})
}

// TestAChangeThatTheHubDoesNotKnow checks that what shards have started under a limit counts if the
// instance that changed it ended before it told the hub, and another one has changed something else.
func TestAChangeThatTheHubDoesNotKnow(t *testing.T) {
	t.Parallel()
	s, _ := sharded(t)
	for shard := range 3 {
		start(t, s, bulk.Spec{ID: fmt.Sprint("a", shard), Tenant: tenantOn(s, shard), Type: "echo"}, 10)
	}
	take(t, s, 12) // some of each shard
	setOnly(t, s, settingLimits, &bulk.Limits{Concurrency: 12}, false)
	send := sender(t, s, false)
	for shard := range 3 {
		send(shard)
	}
	if err := s.Set(t.Context(), bulk.SettingsChange{Name: "other", Tenant: &bulk.Tenant{Weight: 2}}); err != nil {
		t.Fatal(err)
	}
	allKnow(t, s)
	if n, err := admit(t.Context(), s, 10); n != 0 || err != nil {
		t.Errorf("%d jobs admitted, %v; want none beside 12 in flight", n, err)
	}
	if jobs, err := s.Lease(t.Context(), request(10)); len(jobs) != 0 || err != nil {
		t.Errorf("%d jobs leased, %v; want none beside 12 in flight", len(jobs), err)
	}
}

// TestATenantsChangeEndsNoParts checks that a change of a tenant ends no parts of limits that shards share.
func TestATenantsChangeEndsNoParts(t *testing.T) {
	t.Parallel()
	s, _ := sharded(t)
	if err := s.Set(t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: 100}}); err != nil {
		t.Fatal(err)
	}
	start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 20)
	if n, err := admit(t.Context(), s, 20); n != 20 || err != nil {
		t.Fatalf("%d admitted, %v", n, err)
	}
	shard := s.shards[s.shardOf("t")] + "shard"
	before, err := ask(t.Context(), s, s.db.B().Get().Key(shard).Build(), asText)
	if err != nil || !strings.Contains(before, `"quota":20`) {
		t.Fatalf("the shard is %s, %v", before, err)
	}
	if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{Weight: 2}}); err != nil {
		t.Fatal(err)
	}
	after, err := ask(t.Context(), s, s.db.B().Get().Key(shard).Build(), asText)
	if err != nil || !strings.Contains(after, `"quota":20`) {
		t.Errorf("the shard is %s, %v", after, err)
	}
}

// TestAShardWithEarlierSettings checks that a shard that has lost its newest settings gets them again
// without another change: until then it starts nothing under limits.
func TestAShardWithEarlierSettings(t *testing.T) {
	t.Parallel()
	s, clock := sharded(t)
	start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 20)
	limits := s.shards[s.shardOf("t")] + "limits"
	copied := func(from, to string) {
		t.Helper()
		if err := s.db.Do(t.Context(), s.db.B().Copy().Source(from).Destination(to).Replace().Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	copied(limits, "kept:"+limits)
	if err := s.Set(t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: 5}}); err != nil {
		t.Fatal(err)
	}
	if n, err := admit(t.Context(), s, 20); n != 5 || err != nil {
		t.Fatalf("%d admitted, %v", n, err)
	}
	copied("kept:"+limits, limits)
	waiting(t, s) // it sees that the shard is behind
	waiting(t, s)
	clock.advance(time.Second)
	take(t, s, 5)
	clock.advance(time.Second)
	if n, err := admit(t.Context(), s, 20); n != 5 || err != nil {
		t.Errorf("%d admitted, %v; want 5", n, err)
	}
	allKnow(t, s)
}

// waiting returns the actions with lines in the backlog.
func waiting(t *testing.T, s *Store) (actions int) {
	t.Helper()
	b, err := storetest.Backlog(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range b.Lines {
		actions += len(line.Waiting)
	}
	return actions
}
