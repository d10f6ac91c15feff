//go:build redis

package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/storetest"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	evicting := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	locked := redistest.Start(t, redistest.Options{Args: []string{"--requirepass", "correct"}})
	down := redistest.Start(t, redistest.Options{})
	down.Kill()
	later := redistest.Start(t, redistest.Options{})
	later.Cli("SET", "later:{ROOMS}:format", "2")
	tests := []struct {
		name, url, prefix string
		unavailable       bool
		says              []string
	}{
		{name: "a server that evicts", url: evicting.URL(), says: []string{"allkeys-lru", "set it to noeviction"}},
		{name: "a wrong password", url: strings.Replace(locked.URL(), "//", "//:swordfish@", 1), says: []string{"WRONGPASS"}},
		{name: "no password", url: locked.URL(), says: []string{"NOAUTH"}},
		{name: "no server", url: down.URL(), unavailable: true, says: []string{"connection refused"}},
		{name: "another protocol", url: "http://127.0.0.1:6379", says: []string{"http"}},
		{name: "no URL", url: "redis://:swordfish@[::1", says: []string{"redis://user:password@host"}},
		{name: "an unknown parameter", url: "redis://:swordfish@127.0.0.1/?max_retires=3", says: []string{"max_retires", "master_set"}},
		{name: "a later format", url: later.URL(), prefix: "later:", says: []string{`later:{ROOMS}:format is format "2"`, "reads 1, use the one that wrote it"}},
		{name: "a prefix with a hash tag", url: evicting.URL(), prefix: "a{b}", says: []string{"hash tag"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store, err := redisstore.Open(t.Context(), redisstore.Options{URL: test.url, Prefix: test.prefix, Logger: quiet})
			if err == nil {
				t.Fatal(errors.Join(errors.New("it opens"), store.Close()))
			}
			if errors.Is(err, room.ErrUnavailable) != test.unavailable {
				t.Errorf("%v: is it ErrUnavailable: %v, want %v", err, !test.unavailable, test.unavailable)
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

// A store has the number of its format from the start, and one that an earlier version made gets it; a Redis without room for it is opened too.
func TestTheFormatIsStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	store := open(t, redisstore.Options{URL: server.URL()})
	if got := server.Cli("GET", "sluice:{ROOMS}:format"); got != "1" {
		t.Errorf("the format of a new store is %q, want 1", got)
	}
	if _, err := store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	server.Cli("DEL", "sluice:{ROOMS}:format") // as an earlier version left it
	server.Cli("CONFIG", "SET", "maxmemory", "1")
	full := open(t, redisstore.Options{URL: server.URL()})
	if rooms, err := full.Rooms(t.Context()); err != nil || len(rooms) != 1 {
		t.Errorf("a full Redis has %d rooms, %v, want 1", len(rooms), err)
	}
	server.Cli("CONFIG", "SET", "maxmemory", "0")
	open(t, redisstore.Options{URL: server.URL()})
	if got := server.Cli("GET", "sluice:{ROOMS}:format"); got != "1" {
		t.Errorf("the format of a store that had none is %q, want 1", got)
	}
}

func TestOpenWarnsOfAServerThatForgets(t *testing.T) {
	t.Parallel()
	for persist, want := range map[redistest.Persist]bool{redistest.Nothing: true, redistest.Always: false, redistest.EverySecond: false} {
		var log bytes.Buffer
		server := redistest.Start(t, redistest.Options{Persist: persist})
		store := open(t, redisstore.Options{URL: server.URL(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if got := strings.Contains(log.String(), "appendonly"); got != want {
			t.Errorf("persist %q: the log is %q; a warning: %v, want %v", persist, log.String(), got, want)
		}
		if err := store.Examine(t.Context()); err != nil != want {
			t.Errorf("persist %q: what an operator should change is %v; something: %v", persist, err, want)
		}
	}
}

// The user of docs/room/redis.md has all rights that the store needs.
func TestAUserWithFewRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	server.Cli("ACL", "SETUSER", "sluice", "on", ">secret", "~sluice:*", "+@read", "+@write", "+@scripting", "+@connection", "+info", "+time")
	server.Cli("ACL", "SETUSER", "default", "off")
	store := open(t, redisstore.Options{URL: strings.Replace(server.URL(), "//", "//sluice:secret@", 1)})
	terms := room.Terms{Room: "shop", MaxWaiting: 10, Capacity: 1, Events: 10}
	var err error
	if terms.Revision, err = store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Enter(t.Context(), terms, room.Arrival{Key: room.Key{1}}); err != nil {
		t.Error(err)
	}
	if _, err := store.Expire(t.Context(), terms); err != nil {
		t.Error(err)
	}
	if events, err := store.Events(t.Context(), "shop", 0, 0, 10); err != nil || len(events) == 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, err := store.Now(t.Context()); err != nil {
		t.Error(err)
	}
	if err := store.RemoveRoom(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
}

func TestAUnixSocketAndADatabase(t *testing.T) {
	t.Parallel()
	socket := t.TempDir() + "/s"
	server := redistest.Start(t, redistest.Options{Args: []string{"--unixsocket", socket}})
	store := open(t, redisstore.Options{URL: "unix://" + socket + "?db=3", Prefix: "other:"})
	if _, err := store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	if got := server.Cli("EVAL", "redis.call('SELECT', 3) return redis.call('KEYS', 'other:{shop}*')", "0"); got != "other:{shop}" {
		t.Errorf("database 3 holds %q", got)
	}
}

func TestTheEndOfTheCallersContextIsTheCallers(t *testing.T) {
	t.Parallel()
	store, terms := shop(t, redistest.Start(t, redistest.Options{}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Ask(ended, terms, storetest.Bearers(1), true)
	if !errors.Is(err, context.Canceled) || errors.Is(err, room.ErrUnavailable) {
		t.Errorf("error is %v, want only that the context was canceled", err)
	}
}

func TestTLSWithAnAccount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{TLS: true, User: "shops", Password: "a/b@c"})
	if _, err := redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Logger: quiet}); err == nil {
		t.Fatal("it opened a server whose certificate nobody vouches for")
	}
	store := open(t, redisstore.Options{URL: server.URL() + "?skip_verify=true"})
	if _, err := store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	if got := server.Cli("EXISTS", "sluice:{shop}"); got != "1" {
		t.Errorf("EXISTS says %s", got)
	}
}
