package access_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
)

// setQuotas makes changes of quotas, none of which is refused.
func setQuotas(t *testing.T, accounts *access.Accounts, changes ...access.Quota) {
	t.Helper()
	refused, err := accounts.ChangeQuotas(t.Context(), changes, false)
	if err := errors.Join(append(refused, err)...); err != nil {
		t.Fatal(err)
	}
}

// produces is a quota of producers.
func produces(user, client string, rate float64) access.Quota {
	return access.Quota{User: user, Client: client, Rates: map[string]float64{access.ProducerRate: rate}}
}

// The quota that counts is the one that names most: the user first, then the client id. The rates of consumers have no part
// in those of producers.
func TestQuotasHaveKafkasOrder(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	named := func(pattern, name string) int { return slices.Index([]string{"", access.DefaultEntity, name}, pattern) }
	var all []access.Quota
	for i, user := range []string{"", access.DefaultEntity, "till"} {
		for j, client := range []string{"", access.DefaultEntity, "app"} {
			if i+j > 0 {
				all = append(all, produces(user, client, float64(1000*(i*3+j))))
			}
		}
	}
	for subset := range 1 << len(all) {
		for i, q := range all {
			change := produces(q.User, q.Client, 0)
			change.Rates[access.ConsumerRate] = 7
			if subset&(1<<i) != 0 {
				change = q
			}
			setQuotas(t, accounts, change)
		}
		for _, user := range []string{"till", "other"} {
			for _, client := range []string{"app", "other", ""} {
				best, want := -1, int64(0)
				for i, q := range all {
					byUser, byClient := named(q.User, user), named(q.Client, cmp.Or(client, "none"))
					if rank := byUser*3 + byClient; subset&(1<<i) != 0 && byUser >= 0 && byClient >= 0 && rank > best {
						best, want = rank, int64(q.Rates[access.ProducerRate]/5)
					}
				}
				got := int64(0)
				if m := accounts.Meter(&access.Principal{Name: user}, access.ProducerRate, client); m != nil {
					got = m.Allowance()
				}
				if got != want {
					t.Fatalf("%s with %q and quotas %+v: a fifth of the rate is %d, want %d", user, client, accounts.Quotas(), got, want)
				}
			}
		}
	}
}

// Bytes are counted together for what a quota names, and apart for each of those that a default stands for.
func TestWhoseBytesAreCountedTogether(t *testing.T) {
	for _, test := range []struct {
		user, client string
		together     map[string]bool // pairs of user and client id, whether they are counted with till and app
	}{
		{"till", "", map[string]bool{"till app": true, "till other": true, "till ": true}},
		{access.DefaultEntity, "", map[string]bool{"till other": true, "desk app": false}},
		{access.DefaultEntity, access.DefaultEntity, map[string]bool{"till app": true, "till other": false, "desk app": false}},
		{access.DefaultEntity, "app", map[string]bool{"desk app": false}},
		{"", "app", map[string]bool{"desk app": true}},
		{"", access.DefaultEntity, map[string]bool{"desk app": true, "till other": false, "till ": false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			accounts := open(t, &storetest.Memory{}, nil)
			setQuotas(t, accounts, produces(test.user, test.client, 1000))
			spend := func(user, client string, bytes int64) time.Duration {
				return accounts.Meter(&access.Principal{Name: user}, access.ProducerRate, client).Spend(bytes)
			}
			spend("till", "app", 5000)
			for pair, want := range test.together {
				user, client, _ := strings.Cut(pair, " ")
				if wait := spend(user, client, 0); wait > 0 != want {
					t.Errorf("a quota of %q %q: %s waits %v after 5,000 bytes of till app", test.user, test.client, pair, wait)
				}
			}
		})
	}
}

// Ten seconds of clients that send or read as fast as they may have 10 seconds of the rate, within 5 %.
func TestRatesHoldWithin5Percent(t *testing.T) {
	const rate, seconds = 1e6, 10
	for _, test := range []struct {
		reads       bool
		connections int
		size        int64 // of a request, or the least of an answer with records
	}{
		{false, 1, 1000}, {false, 1, 300_000}, {false, 20, 16_000},
		{true, 1, 1000}, {true, 1, 100_000}, {true, 20, 16_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			accounts := open(t, &storetest.Memory{}, nil)
			key := access.ProducerRate
			if test.reads {
				key = access.ConsumerRate
			}
			setQuotas(t, accounts, access.Quota{User: "till", Rates: map[string]float64{key: rate}})
			time.Sleep(time.Hour) // silence is not saved up
			got := make([]int64, test.connections)
			began := time.Now()
			var all sync.WaitGroup
			for i := range got {
				all.Go(func() {
					for time.Since(began) < seconds*time.Second {
						m, bytes := accounts.Meter(&access.Principal{Name: "till"}, key, "app"), test.size
						if test.reads {
							if bytes = m.Allowance(); bytes > 0 {
								bytes = max(bytes, test.size)
							}
						}
						got[i] += bytes
						time.Sleep(m.Spend(bytes) + time.Duration(i+1)*time.Millisecond) // others are farther away
					}
				})
			}
			all.Wait()
			total, least := int64(0), int64(math.MaxInt64)
			for _, bytes := range got {
				total, least = total+bytes, min(least, bytes)
			}
			if off := float64(total)/(rate*seconds) - 1; math.Abs(off) > 0.05 {
				t.Errorf("%+v: %d bytes in %d s, %+.1f %% of the rate", test, total, seconds, 100*off)
			}
			if least < total/int64(test.connections)/10 {
				t.Errorf("%+v: a connection has %d bytes of %d: it starves", test, least, total)
			}
		})
	}
}

// One request never makes its client wait longer than MaxThrottle, and what is used beyond a minute of the rate is forgotten.
func TestThrottlesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := open(t, &storetest.Memory{}, nil)
		setQuotas(t, accounts, produces("till", "", 1000))
		m := func() *access.Meter { return accounts.Meter(&access.Principal{Name: "till"}, access.ProducerRate, "") }
		if wait := m().Spend(1 << 40); wait != access.MaxThrottle || m().Allowance() != 0 {
			t.Errorf("after a TiB: a wait of %v, and an answer may have %d bytes", wait, m().Allowance())
		}
		time.Sleep(59 * time.Second)
		if wait := m().Spend(0); wait != time.Second {
			t.Errorf("59 s later a wait of %v, want 1s", wait)
		}
		setQuotas(t, accounts, produces("till", "", 1e6))
		if wait := m().Spend(0); wait != time.Millisecond {
			t.Errorf("with a thousand times the rate a wait of %v, want 1ms", wait)
		}
		for i := range 30_000 { // ids that a client makes up
			accounts.Meter(&access.Principal{Name: "till"}, access.ProducerRate, fmt.Sprint(i)).Spend(1)
		}
		if setQuotas(t, accounts, produces("", "<default>", 10), produces("till", "", 0)); m().Spend(0) != 0 {
			t.Error("a quota that was removed counts")
		}
		for i := range 30_000 {
			accounts.Meter(&access.Principal{Name: "till"}, access.ProducerRate, fmt.Sprint(i)).Spend(5)
		}
		spend := func(client string) time.Duration {
			return accounts.Meter(&access.Principal{Name: "till"}, access.ProducerRate, client).Spend(5)
		}
		if wait := spend("one more"); wait != access.MaxThrottle {
			t.Errorf("with more ids than there are places, a new one waits %v, want %v with the others", wait, access.MaxThrottle)
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			if wait := spend(fmt.Sprint("new ", i)); wait != 400*time.Millisecond {
				t.Errorf("when the others were silent a new id waits %v, want 400ms as it alone has 4 bytes of 10 to make good", wait)
			}
		}
	})
}

// Quotas that one instance changes count at all of them after Follow, and a change that cannot be is refused, by a validation
// too, which changes nothing.
func TestInstancesAgreeOnQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		here, there := open(t, store, nil), open(t, store, nil)
		good := produces("jwt:alice", "app", 1000)
		both := access.Quota{User: access.DefaultEntity, Rates: map[string]float64{access.ProducerRate: 1, access.ConsumerRate: math.MaxInt64}}
		setQuotas(t, here, good, both, produces(access.DefaultEntity, "", 0), produces("nobody", "", 0))
		time.Sleep(followed)
		both.Rates = map[string]float64{access.ConsumerRate: math.MaxInt64}
		same := func(x, y access.Quota) bool {
			return x.User == y.User && x.Client == y.Client && maps.Equal(x.Rates, y.Rates)
		}
		if got := there.Quotas(); !slices.EqualFunc(got, []access.Quota{good, both}, same) {
			t.Errorf("there are %+v, want %+v and %+v", got, good, both)
		}
		all := []access.Quota{
			good, produces("", "", 1), produces(strings.Repeat("a", 257), "", 1), produces("a", "\n", 1),
			produces("a", "", -1), produces("a", "", 0.5), produces("a", "", math.NaN()), produces("a", "", math.Inf(1)),
			{User: "a", Rates: map[string]float64{"request_percentage": 50}}, {User: "a", Rates: map[string]float64{"controller_mutation_rate": 5}},
		}
		for _, validateOnly := range []bool{true, false} {
			refused, err := here.ChangeQuotas(t.Context(), all, validateOnly)
			if err != nil || refused[0] != nil {
				t.Fatal(refused, err)
			}
			for i := range all[1:] {
				if _, invalid := errors.AsType[*access.InvalidError](refused[i+1]); !invalid {
					t.Errorf("%+v: %v, want that it is invalid", all[i+1], refused[i+1])
				}
			}
			var many []access.Quota
			for i := range access.MaxQuotas - 1 {
				many = append(many, produces("user", fmt.Sprint(i), 1))
			}
			if _, err := here.ChangeQuotas(t.Context(), many, validateOnly); !errors.Is(err, access.ErrFull) {
				t.Errorf("validate only %v: one quota too many: %v", validateOnly, err)
			}
			if _, err := here.ChangeQuotas(t.Context(), many[1:], true); err != nil || len(here.Quotas()) != 2 {
				t.Errorf("a validation of as many quotas as there may be: %v, and there are %d", err, len(here.Quotas()))
			}
		}
		setQuotas(t, here, produces("jwt:alice", "app", 0), access.Quota{User: access.DefaultEntity, Rates: map[string]float64{access.ConsumerRate: 0}})
		if text, _, err := store.Read(t.Context()); err != nil || strings.Contains(string(text), "quotas") || !strings.Contains(string(text), `"format":1`) {
			t.Errorf("without quotas the document is %s, %v", text, err)
		}
	})
}

// made is a quota of what a user has made.
func made(user string, of map[string]float64) access.Quota {
	return access.Quota{User: user, Rates: of}
}

// A user has the quota of their name before that of all others; the admin token, and nobody, have none.
func TestMostThatAUserMayHaveMade(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	setQuotas(t, accounts, made("ada", map[string]float64{access.MaxTopics: 3}),
		made(access.DefaultEntity, map[string]float64{access.MaxTopics: 5, access.MaxRooms: math.MaxInt64}))
	for _, test := range []struct {
		user, quota string
		want        int
	}{
		{"ada", access.MaxTopics, 3}, {"ada", access.MaxRooms, math.MaxInt32}, {"ada", access.MaxGroups, 0}, {"bob", access.MaxTopics, 5},
		{access.AdminName, access.MaxTopics, 0}, {"", access.MaxTopics, 0},
	} {
		if got := accounts.Most(test.user, test.quota); got != test.want {
			t.Errorf("%s of %q: %d, want %d", test.quota, test.user, got, test.want)
		}
	}
	setQuotas(t, accounts, made("ada", map[string]float64{access.MaxTopics: 0}))
	if got := accounts.Most("ada", access.MaxTopics); got != 5 {
		t.Errorf("after its own quota was removed ada may have %d topics, want the 5 of the default", got)
	}
	if got := (*access.Accounts)(nil).Most("ada", access.MaxTopics); got != 0 {
		t.Errorf("without accounts ada may have %d topics, want any number", got)
	}
}

// A quota is refused for an entity that it is not of.
func TestQuotasAreOfTheirEntities(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	for _, test := range []struct {
		change access.Quota
		says   string
	}{
		{access.Quota{Client: "app", Rates: map[string]float64{access.MaxTopics: 1}}, "a user without a client-id"},
		{access.Quota{User: "ada", Client: "app", Rates: map[string]float64{access.MaxRooms: 1}}, "a user without a client-id"},
		{access.Quota{Tenant: "acme", Rates: map[string]float64{access.MaxGroups: 1}}, "a user without a client-id"},
		{access.Quota{Tenant: "acme", Rates: map[string]float64{access.ProducerRate: 1}}, "a user, a client-id, or both"},
		{access.Quota{User: "ada", Rates: map[string]float64{access.RequestRate: 1}}, "a quota of a tenant"},
		{access.Quota{User: "ada", Tenant: "acme"}, "a tenant alone"},
		{access.Quota{Tenant: "acme-*", Rates: map[string]float64{access.RequestRate: 1}}, "not a prefix"},
		{access.Quota{User: "ada", Rates: map[string]float64{access.MaxTopics: 1.5}}, "a whole number of what exists"},
		{access.Quota{User: "ada", Rates: map[string]float64{"max_cats": 1}}, access.MaxPartitions},
	} {
		refused, err := accounts.ChangeQuotas(t.Context(), []access.Quota{test.change}, false)
		if err != nil || refused[0] == nil || !strings.Contains(refused[0].Error(), test.says) {
			t.Errorf("%+v: %v, %v; want a refusal with %q", test.change, refused, err, test.says)
		}
	}
}

// All accounts of one tenant share the requests of its quota, within 5 % over ten seconds. Accounts of several tenants, and of all,
// have no part in it. An earlier release, which would lose the quota, refuses the document.
func TestRequestsOfATenantAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		accounts := open(t, store, nil)
		setQuotas(t, accounts, access.Quota{Tenant: "acme", Rates: map[string]float64{access.RequestRate: 50}},
			access.Quota{Tenant: access.DefaultEntity, Rates: map[string]float64{access.RequestRate: 10}})
		senders := map[string]*access.Principal{
			"acme 1": {Name: "a", Tenants: []string{"acme"}}, "acme 2": {Name: "b", Tenants: []string{"acme"}}, "globex": {Name: "c", Tenants: []string{"globex"}},
			"two": {Name: "d", Tenants: []string{"acme", "globex"}}, "prefix": {Name: "e", Tenants: []string{"acme*"}}, "all": {Name: "f"},
		}
		passed := map[string]int{}
		for range 1000 {
			for name, p := range senders {
				err := accounts.Request(p)
				late, tooMany := errors.AsType[*access.TooManyError](err)
				if err == nil {
					passed[name]++
				} else if !tooMany || late.Wait <= 0 || !strings.Contains(err.Error(), "the tenant "+p.Tenants[0]) || !strings.Contains(err.Error(), access.RequestRate) {
					t.Fatalf("%s: %v", name, err)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := passed["acme 1"] + passed["acme 2"]; n < 475 || n > 525 {
			t.Errorf("%d requests of the tenant in 10 s, want 500 within 5 %%", n)
		}
		if n := passed["globex"]; n < 95 || n > 105 {
			t.Errorf("%d requests of a tenant with the default quota in 10 s, want 100 within 5 %%", n)
		}
		for _, name := range []string{"two", "prefix", "all"} {
			if passed[name] != 1000 {
				t.Errorf("%s: %d requests pass, want all 1,000", name, passed[name])
			}
		}
		text, _, err := store.Read(t.Context())
		if err != nil || !strings.HasPrefix(string(text), `{"format":4,`) {
			t.Errorf("the document is %.40s, %v; want format 4", text, err)
		}
	})
}
