package topic

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/natsstore"
)

const migrateSecret = "a secret of some length"

var discard = slog.New(slog.DiscardHandler)

func openTopicStore(t *testing.T, dir string) topic.Store {
	t.Helper()
	store, err := filestore.Open(dir, filestore.Options{Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// openOldStore opens a store as earlier releases do.
func openOldStore(t *testing.T, dir string) topic.Store {
	t.Helper()
	store, err := natsstore.Open(dir, natsstore.Options{Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// stoppedTopics returns the data directory of a stopped server with a topic of two partitions and
// three records in the first.
func stoppedTopics(t *testing.T, open func(*testing.T, string) topic.Store) (dir string) {
	t.Helper()
	dir = t.TempDir()
	store := open(t, filepath.Join(dir, "topic"))
	broker, err := broker.New(store, topic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	orders, err := broker.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 2}, false)
	if err != nil {
		t.Fatal(err)
	}
	var records []topic.Record
	for n := range 3 {
		records = append(records, topic.Record{Offset: int64(n), Timestamp: time.Now().UnixMilli(), Value: []byte("value")})
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	appending, err := orders.Append(t.Context(), 0, []topic.Batch{batch})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := appending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := broker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func topicMigrateTold(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	return clitest.Command(t, Command, append([]string{"topic", "migrate"}, args...)...)
}

// The command prints a table of the migration, and says so when it is called again.
func TestTopicMigrate(t *testing.T) {
	for name, open := range map[string]func(*testing.T, string) topic.Store{"files": openTopicStore, "earlier release": openOldStore} {
		t.Run(name, func(t *testing.T) { testTopicMigrate(t, stoppedTopics(t, open)) })
	}
}

func testTopicMigrate(t *testing.T, dir string) {
	t.Setenv("SLUICE_CLUSTER_SECRET", migrateSecret)
	store := openTopicStore(t, t.TempDir())
	defer store.Close()
	server := httptest.NewServer(migrate.NewTargetHandler(migrate.NewImport(store), migrateSecret, discard))
	defer server.Close()
	code, out, said := topicMigrateTold(t, "--from", dir, "--to", server.URL, "--dry-run")
	if code != 0 || !strings.Contains(said, "nothing was changed; without --dry-run") || !strings.Contains(out, "partitions     2") {
		t.Errorf("a dry run: %d\n%s%s", code, out, said)
	}
	if items, err := store.Meta().List(t.Context(), "imports/"); err != nil || len(items) != 0 {
		t.Errorf("a dry run has begun %v, %v", items, err)
	}
	if code, out, said = topicMigrateTold(t, "--from", dir, "--to", server.URL, "--abort"); code != 0 || !strings.Contains(said, "given up") {
		t.Errorf("a move that is given up: %d\n%s%s", code, out, said)
	}
	code, out, said = topicMigrateTold(t, "--from", dir, "--to", server.URL)
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 {
			fields[words[0]] = strings.Join(words[1:], " ")
		}
	}
	if code != 0 || fields["topics"] != "1" || fields["partitions"] != "2" || fields["records"] != "3" || fields["replicas"] != "1" || !strings.Contains(said, "the topics go on at") {
		t.Errorf("a move: %d\n%s%s", code, out, said)
	}
	code, out, said = topicMigrateTold(t, "--from", dir, "--to", server.URL, "--json")
	var again migratedTopics
	if err := json.Unmarshal([]byte(out), &again); err != nil || code != 0 || !again.Before || again.Records != 3 || again.To != server.URL {
		t.Errorf("the same again: %d %v\n%s%s", code, err, out, said)
	}
	if code, _, said = topicMigrateTold(t, "--from", dir, "--to", server.URL, "--abort"); code != 1 || !strings.Contains(said, "in the cluster already") {
		t.Errorf("giving up afterwards: %d\n%s", code, said)
	}
}

// The command names what it cannot migrate.
func TestTopicMigrateRefuses(t *testing.T) {
	dir, store := stoppedTopics(t, openTopicStore), openTopicStore(t, t.TempDir())
	defer store.Close()
	server := httptest.NewServer(migrate.NewTargetHandler(migrate.NewImport(store), migrateSecret, discard))
	defer server.Close()
	for _, test := range []struct {
		secret string
		args   []string
		code   int
		says   string
	}{
		{migrateSecret, []string{"--from", dir}, 2, "say from where and to which node"},
		{migrateSecret, []string{"--from", dir, "--to", "node1"}, 2, "say from where and to which node"},
		{"", []string{"--from", dir, "--to", server.URL}, 2, "set SLUICE_CLUSTER_SECRET"},
		{migrateSecret, []string{"--from", dir, "--to", server.URL, "--max-pause", "1ms"}, 2, "want at least 100ms"},
		{migrateSecret, []string{"--from", filepath.Join(dir, "none"), "--to", server.URL}, 1, "is not a data directory with topics"},
		{"another secret of some length", []string{"--from", dir, "--to", server.URL}, 1, "refuses the secret"},
		{migrateSecret, []string{"--from", server.URL, "--to", server.URL}, 1, "runs without --cluster"},
		{migrateSecret, []string{"--from", dir, "--to", server.URL, "--replicas", "3"}, 1, "want 1 to 1"},
		{migrateSecret, []string{"--from", dir, "--to", server.URL, "--topics", "none"}, 1, "topic does not exist"},
	} {
		t.Setenv("SLUICE_CLUSTER_SECRET", test.secret)
		if code, out, said := topicMigrateTold(t, test.args...); code != test.code || out != "" || !strings.Contains(said, test.says) {
			t.Errorf("%v: %d\n%s%s", test.args, code, out, said)
		}
	}
}

// Over TLS the command trusts the authority that it is given, and shows its certificate; without either it says what is missing.
func TestTopicMigrateOverTLS(t *testing.T) {
	t.Setenv("SLUICE_CLUSTER_SECRET", migrateSecret)
	authority := certtest.New(t)
	own, mine := authority.Issue("server"), authority.Issue("migration")
	clients, err := renew.LoadClients(renew.ClientOptions{CAFile: authority.File})
	if err != nil {
		t.Fatal(err)
	}
	store := openTopicStore(t, t.TempDir())
	defer store.Close()
	server := httptest.NewUnstartedServer(migrate.NewTargetHandler(migrate.NewImport(store), migrateSecret, discard))
	server.Config.ErrorLog = slog.NewLogLogger(discard.Handler(), slog.LevelError)
	if server.TLS, err = renew.ServerTLS(own.Cert, own.Key, clients, nil); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	defer server.Close()
	from := []string{"--from", stoppedTopics(t, openTopicStore), "--to", server.URL}
	trusted := append(slices.Clip(from), "--ca", authority.File)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{from, 1, "the certificate of " + server.URL + " is not trusted"},
		{trusted, 1, "with --client-cert and --client-key"},
		{append(slices.Clip(trusted), "--client-cert", mine.Cert), 2, "--client-cert and --client-key belong together"},
		{append(slices.Clip(trusted), "--client-cert", mine.Cert, "--client-key", mine.Key), 0, "the topics go on at"},
	} {
		if code, out, said := topicMigrateTold(t, test.args...); code != test.code || !strings.Contains(said, test.says) {
			t.Errorf("%v: %d\n%s%s, want %d: %s", test.args, code, out, said, test.code, test.says)
		}
	}
}

func TestTopicMigrateProgress(t *testing.T) {
	got := progressLine(migrate.Progress{Phase: migrate.Finishing, Bytes: 96 << 20, Entries: 1200, Total: 128 << 20, Pause: 300 * time.Millisecond}, 48<<20)
	if want := "finishing · 96 MiB/128 MiB (75 %) · 1,200 entries · 48 MiB/s · paused for 300ms"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
}
