//go:build redis

package redisstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	evicting := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory-policy", "volatile-lru"}})
	locked := redistest.Start(t, redistest.Options{User: "me", Password: "correct"})
	server := redistest.Start(t, redistest.Options{})
	down := redistest.Start(t, redistest.Options{})
	down.Kill()
	open(t, Options{URL: server.URL(), Shards: 3})
	server.Cli("HSET", "later:bulk:{hub}:config", "format", "2")
	server.Cli("HSET", "broken:bulk:{hub}:config", "shards", "many")
	twice := unlimited()
	twice.Window = 2 * time.Second
	odd := unlimited()
	odd.Window = time.Second + time.Microsecond
	tests := []struct {
		name        string
		options     Options
		unavailable bool
		says        []string
	}{
		{name: "a server that evicts", options: Options{URL: evicting.URL()}, says: []string{"volatile-lru", "set it to noeviction"}},
		{name: "a wrong password", options: Options{URL: "redis://me:swordfish@" + locked.Addr()}, says: []string{"WRONGPASS"}},
		{name: "no password", options: Options{URL: "redis://" + locked.Addr()}, says: []string{"NOAUTH"}},
		{name: "no server", options: Options{URL: "redis://me:swordfish@" + down.Addr()}, unavailable: true, says: []string{"connection refused"}},
		{name: "another protocol", options: Options{URL: "http://me:swordfish@127.0.0.1:6379"}, says: []string{"http"}},
		{name: "no URL", options: Options{URL: "redis://:swordfish@[::1"}, says: []string{"redis://user:password@host"}},
		{name: "an unknown parameter", options: Options{URL: "redis://:swordfish@127.0.0.1/?max_retires=3"}, says: []string{"max_retires", "master_set"}},
		{name: "a prefix with a hash tag", options: Options{URL: server.URL(), Prefix: "a{b}"}, says: []string{"hash tag"}},
		{name: "another number of shards", options: Options{URL: server.URL(), Shards: 4}, says: []string{"has 3 shards", "4 cannot be had"}},
		{name: "too many shards", options: Options{URL: server.URL(), Shards: 257}, says: []string{"257 shards", "1 to 256"}},
		{name: "less than no shards", options: Options{URL: server.URL(), Shards: -1}, says: []string{"-1 shards"}},
		{name: "another window", options: Options{URL: server.URL(), Bulk: twice}, says: []string{"windows of 1000 ms, not of 2000", "HDEL sluice:bulk:{hub}:config window_ms"}},
		{name: "a window of parts of milliseconds", options: Options{URL: server.URL(), Bulk: odd}, says: []string{"whole milliseconds"}},
		{name: "a later format", options: Options{URL: server.URL(), Prefix: "later:"}, says: []string{`format "2"`, "reads 1, use the one that wrote it"}},
		{name: "a number of shards that is none", options: Options{URL: server.URL(), Prefix: "broken:"}, says: []string{`"many" shards`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.options.Logger, test.options.CallTimeout = quiet, patient
			if test.options.Bulk.Window == 0 {
				test.options.Bulk = unlimited()
			}
			s, err := Open(t.Context(), test.options)
			if err == nil {
				t.Fatal(errors.Join(errors.New("it opens"), s.Close()))
			}
			if errors.Is(err, bulk.ErrUnavailable) != test.unavailable {
				t.Errorf("%v: is it bulk.ErrUnavailable: %v, want %v", err, !test.unavailable, test.unavailable)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error is %q, want it to say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "swordfish") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

// TestTheWindowCanBeChanged checks that a refused Open changes nothing, and that the advice
// in its error about the window works.
func TestTheWindowCanBeChanged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	first := open(t, Options{URL: server.URL(), Shards: 2})
	start(t, first, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 5)
	take(t, first, 2)
	_ = first.Close() // it never fails
	twice := unlimited()
	twice.Window = 2 * time.Second
	if s, err := Open(t.Context(), Options{URL: server.URL(), Bulk: twice, Logger: quiet}); err == nil {
		_ = s.Close()
		t.Fatal("another window is taken")
	}
	server.Cli("HDEL", "sluice:bulk:{hub}:config", "window_ms")
	second := open(t, Options{URL: server.URL(), Bulk: twice})
	take(t, second, 3)
	if a := action(t, second, "a"); a.InFlight != 5 || len(second.shards) != 2 {
		t.Errorf("%d shards, counts %+v", len(second.shards), a.Counts)
	}
}

func TestHowManyShards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	for _, test := range []struct {
		name, url, prefix  string
		first, again, want int
	}{
		{"one server", server.URL(), "one:", 0, 0, 1},
		{"what it has", server.URL(), "has:", 7, 0, 7},
		{"the same again", server.URL(), "same:", 7, 7, 7},
		{"the most", server.URL(), "most:", 256, 0, 256},
		{"a cluster", cluster.URL(), "one:", 0, 0, ClusterShards},
		{"a cluster, told", cluster.URL(), "told:", 3, 0, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, shards := range []int{test.first, test.again} {
				if s := open(t, Options{URL: test.url, Prefix: test.prefix, Shards: shards}); len(s.shards) != test.want {
					t.Errorf("%d shards, want %d", len(s.shards), test.want)
				}
			}
		})
	}
}

func TestOpenWarnsOfAServerThatForgets(t *testing.T) {
	t.Parallel()
	for persist, want := range map[redistest.Persist]bool{redistest.Nothing: true, redistest.Always: false, redistest.EverySecond: false} {
		var log bytes.Buffer
		server := redistest.Start(t, redistest.Options{Persist: persist})
		open(t, Options{URL: server.URL(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if got := strings.Contains(log.String(), "appendonly"); got != want {
			t.Errorf("persist %q: the log is %q; a warning: %v, want %v", persist, log.String(), got, want)
		}
	}
}

// everything makes every call of a store, and settles jobs in every way.
func everything(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("KeepEvents", s.KeepEvents(ctx, 10_000))
	check("Set", s.Set(ctx, bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: 1e6}}))
	check("Set", s.Set(ctx, bulk.SettingsChange{Name: "host", Target: &bulk.TargetLimits{RequestsPerSecond: 1e6, Concurrency: 100}}))
	check("Set", s.Set(ctx, bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{RequestsPerSecond: 1e6, Weight: 2}}))
	_, err := s.Settings(ctx)
	check("Settings", err)
	start(t, s, bulk.Spec{
		ID: "a", Tenant: "t", Type: bulk.WebhookType, Target: &bulk.Target{Name: "host", URL: "http://host/"},
		Aggregate: []string{"count"}, Events: []string{"actions", "jobs"},
	}, 6)
	jobs := take(t, s, 6)
	for i, kind := range []bulk.SettlementKind{
		bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.Throttled, bulk.Released, bulk.Extended,
	} {
		verdicts, err := s.Settle(ctx, settlements(kind, jobs[i:i+1]))
		if err != nil || verdicts[0] != bulk.Accepted {
			t.Errorf("settled as %d: %v, %v", kind, verdicts, err)
		}
	}
	_, _, err = s.Dispatch(ctx, 10)
	check("Dispatch", err)
	_, upTo, err := s.Outcomes(ctx, "a", 0)
	check("Outcomes", err)
	_, err = s.Transition(ctx, "a", bulk.Transition{Kind: bulk.Reduce, Reduced: upTo, Partial: []byte("{}")})
	check("Reduce", err)
	letters, err := s.DeadLetters(ctx, "a", 0, 10)
	if err != nil || len(letters) != 1 {
		t.Errorf("%d dead letters, %v", len(letters), err)
	}
	_, upTo, err = s.Events(ctx)
	check("Events", err)
	check("Published", s.Published(ctx, upTo))
	for _, move := range []bulk.TransitionKind{bulk.Pause, bulk.Resume, bulk.Cancel} {
		_, err := s.Transition(ctx, "a", bulk.Transition{Kind: move})
		check("Transition", err)
	}
	for _, filter := range []bulk.ActionFilter{{}, {Unfinished: true}, {Tenant: "t", Status: bulk.Canceled}} {
		if found, err := s.Actions(ctx, filter); err != nil || len(found) != 1 {
			t.Errorf("%d actions of %+v, %v", len(found), filter, err)
		}
	}
	_, err = s.Settle(ctx, settlements(bulk.Released, jobs[5:]))
	check("Settle", err)
	_, err = s.Transition(ctx, "a", bulk.Transition{Kind: bulk.Drained})
	check("Drained", err)
	_, err = s.Transition(ctx, "a", bulk.Transition{Kind: bulk.Forget})
	check("Forget", err)
	if _, err := s.Action(ctx, "a"); !errors.Is(err, bulk.ErrNotFound) {
		t.Errorf("error is %v after it was forgotten, want bulk.ErrNotFound", err)
	}
}

// fewRights are the rights that a user needs, as listed in docs/formats/bulk-redis.md.
var fewRights = []string{"+@read", "+@write", "+@scripting", "+@connection", "+info", "+time"}

func TestAUserWithFewRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	server.Cli(append([]string{"ACL", "SETUSER", "sluice", "on", ">secret", "~sluice:bulk:*"}, fewRights...)...)
	server.Cli("ACL", "SETUSER", "default", "off")
	for _, shards := range []int{1, 3} {
		prefix := strings.Repeat("sluice:bulk:", shards) // each has its own prefix
		everything(t, open(t, Options{
			URL: "redis://sluice:secret@" + server.Addr(), Prefix: prefix, Shards: shards, Instance: "one",
		}))
	}
}

func TestTheWaysToAServer(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, redistest.Options{Socket: true})
	safe := redistest.Start(t, redistest.Options{TLS: true, User: "jobs", Password: "a/b@c"})
	for name, url := range map[string]string{
		"redis": plain.URL(), "valkey": strings.Replace(plain.URL(), "redis:", "valkey:", 1),
		"a database": plain.URL() + "/2", "unix": plain.SocketURL() + "?db=3",
		"rediss": safe.URL() + "?skip_verify=1", "valkeys": strings.Replace(safe.URL(), "rediss:", "valkeys:", 1) + "?skip_verify=1",
	} {
		t.Run(name, func(t *testing.T) { everything(t, open(t, Options{URL: url, Prefix: name + ":"})) })
	}
	for database, prefix := range map[string]string{"2": "a database:", "3": "unix:"} {
		if got := plain.Cli("EVAL", "redis.call('SELECT', ARGV[1]) return redis.call('EXISTS', ARGV[2])", "0", database, prefix+"bulk:{hub}:config"); got != "1" {
			t.Errorf("database %s has no store", database)
		}
	}
	// This certificate is not trusted.
	s, err := Open(t.Context(), Options{URL: safe.URL(), Bulk: unlimited(), Logger: quiet, CallTimeout: patient})
	if err == nil || strings.Contains(err.Error(), "a/b@c") || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error is %v, want one about the certificate", err)
	}
	if s != nil {
		_ = s.Close()
	}
}

func TestTheEndOfTheCallersContextIsTheCallers(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL()})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := storetest.Backlog(ended, s)
	if !errors.Is(err, context.Canceled) || errors.Is(err, bulk.ErrUnavailable) {
		t.Errorf("error is %v, want only that the context was canceled", err)
	}
}

func TestAClosedStore(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL()})
	_ = s.Close()
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := storetest.Backlog(t.Context(), s); !errors.Is(err, bulk.ErrClosed) {
		t.Errorf("Backlog: %v, want bulk.ErrClosed", err)
	}
	if _, _, err := s.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}); !errors.Is(err, bulk.ErrClosed) {
		t.Errorf("Create: %v, want bulk.ErrClosed", err)
	}
}
