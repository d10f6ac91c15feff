package migrate_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/clusterkey"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// serveMove serves a handler, and returns a client of it.
func serveMove(t *testing.T, handler http.Handler) *migrate.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	client := migrate.NewClient(server.URL, "a secret of some length", nil)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client
}

// A migration over HTTP copies the same data, and is refused with the same errors.
func TestOverHTTP(t *testing.T) {
	source := startServer(t, storetest.NewMemory())
	defer source.stop()
	source.create("orders", 3, nil)
	large := strings.Repeat("x", 1<<20-200)
	for n := range 8 {
		_, err := source.send("orders", int32(n%3), batch(t, nil, nil, large))
		must(t, err)
	}
	must(t, source.commit(group.MemberIdentity{Group: "g/é?&", Generation: -1}, "orders", 1))
	store := storetest.NewMemory()
	log := slog.New(slog.DiscardHandler)
	from := serveMove(t, migrate.NewSourceHandler(source.export, "a secret of some length", log))
	to := serveMove(t, migrate.NewTargetHandler(migrate.NewImport(store), "a secret of some length", log))

	if _, err := migrate.New(from, to, migrate.Options{Replicas: 2}).Check(t.Context()); !errors.Is(err, topic.ErrInvalidReplicas) {
		t.Errorf("two replicas on one node: %v", err)
	}
	result, err := migrate.New(from, to, migrate.Options{}).Run(t.Context())
	must(t, err)
	if want := int64(8 << 20); result.Bytes < want-4096 || result.Bytes > want+4096 {
		t.Errorf("%d bytes were copied", result.Bytes)
	}
	sameLogs(t, source.store, source.inventory(), store)
	if got := items(t, store, "offsets/"); got["offsets/g/é?&/orders"] == "" {
		t.Errorf("offsets: %v", got)
	}
	if _, err := migrate.New(from, to, migrate.Options{}).Abort(t.Context()); !errors.Is(err, migrate.ErrImported) {
		t.Errorf("giving up afterwards: %v", err)
	}
	if err := from.Fence(t.Context(), "another", 1); !errors.As(err, new(*catalog.MigratedError)) {
		t.Errorf("a fence for another cluster: %v", err)
	}
	if _, err := to.Append(t.Context(), "none", 1, "records-00-0", nil); !errors.Is(err, topic.ErrNotFound) {
		t.Errorf("an import that there is not: %v", err)
	}

	other := storetest.NewMemory()
	busy := startServer(t, other)
	defer busy.stop()
	busy.create("orders", 1, nil)
	var conflict *migrate.ImportConflictError
	_, err = serveMove(t, migrate.NewTargetHandler(migrate.NewImport(other), "a secret of some length", log)).
		Begin(t.Context(), migrate.ImportRequest{Inventory: source.inventory()})
	if !errors.As(err, &conflict) || !slices.Equal(conflict.Topics, []string{"orders"}) {
		t.Errorf("a topic that is there: %v", err)
	}
}

// Requests without the secret get no information, and unserved paths are reported as such.
func TestWhoIsLetIn(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	source := startServer(t, storetest.NewMemory())
	defer source.stop()
	server := httptest.NewServer(migrate.NewSourceHandler(source.export, "the secret", log))
	defer server.Close()
	for _, secret := range []string{"", "the secre", "the secret2"} {
		client := migrate.NewClient(server.URL, secret, nil)
		if _, err := client.Inventory(t.Context()); err == nil || !strings.Contains(err.Error(), "refuses the secret") {
			t.Errorf("with %q: %v", secret, err)
		}
		client.Close()
	}
	for _, token := range []string{"the secret", clusterkey.Derive("the secret", clusterkey.Routes)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+migrate.Prefix+"source", http.NoBody)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("with the token %s: %s", token, response.Status)
		}
	}
	client := migrate.NewClient(server.URL, "the secret", nil)
	defer client.Close()
	if _, err := client.Begin(t.Context(), migrate.ImportRequest{}); !errors.Is(err, migrate.ErrNotServed) {
		t.Errorf("an import into a single node: %v", err)
	}
	if _, err := client.Entries(t.Context(), "../secret", 0, 1); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("a log that is none: %v", err)
	}
	for _, request := range []struct{ method, path, body string }{
		{"POST", "source/fence", "{"}, {"GET", "source/logs/x?from=-1", ""}, {"GET", "source/logs/x/y", ""}, {"GET", "source/items?max_bytes=x", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request.method, server.URL+migrate.Prefix+request.path, strings.NewReader(request.body))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+clusterkey.Derive("the secret", clusterkey.Migration))
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		text, _ := io.ReadAll(response.Body)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusBadRequest || !bytes.Contains(text, []byte(`"code":"invalid"`)) {
			t.Errorf("%s %s: %s %s", request.method, request.path, response.Status, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Frames that were changed in transit, and incomplete sequences of frames, are refused.
func TestFramesAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent []topic.Entry
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			mark := topic.Mark{
				Base: rapid.Int64().Draw(t, "base"), Next: rapid.Int64().Draw(t, "next"), Epoch: rapid.Int32().Draw(t, "epoch"),
				MaxTimestamp: rapid.Int64().Draw(t, "time"), Bytes: rapid.Int64().Draw(t, "bytes"), Released: rapid.Int64().Draw(t, "released"),
			}
			sent = append(sent, topic.Entry{Sequence: rapid.Uint64().Draw(t, "sequence"), Mark: mark, Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data")})
		}
		var wire bytes.Buffer
		must(t, migrate.WriteEntries(&wire, sent))
		encoded := wire.Bytes()
		got, err := migrate.ReadEntries(bytes.NewReader(encoded))
		must(t, err)
		if !slices.EqualFunc(got, sent, func(x, y topic.Entry) bool {
			return x.Sequence == y.Sequence && x.Mark == y.Mark && bytes.Equal(x.Data, y.Data)
		}) {
			t.Fatalf("sent %v, got %v", sent, got)
		}
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		if _, err := migrate.ReadEntries(bytes.NewReader(encoded[:cut])); err == nil {
			t.Fatalf("%d of %d bytes are taken for all", cut, len(encoded))
		}
		changed := bytes.Clone(encoded)
		changed[rapid.IntRange(0, len(encoded)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := migrate.ReadEntries(bytes.NewReader(changed)); err == nil {
			t.Fatal("a bit that was changed is not noticed")
		}
	})
}

// For any bytes, the reader of frames succeeds or returns an error.
func FuzzFrames(f *testing.F) {
	var wire bytes.Buffer
	_ = migrate.WriteEntries(&wire, []topic.Entry{{Sequence: 3, Data: []byte("data")}})
	f.Add(wire.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = migrate.ReadEntries(bytes.NewReader(data))
		_, _ = migrate.ReadItems(bytes.NewReader(data))
	})
}
