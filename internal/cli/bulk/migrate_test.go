//go:build redis

package bulk

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/redisstore"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// stoppedServer returns a data directory with an action of 2,000 jobs and a paused one of 3.
func stoppedServer(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	store, err := pebblestore.Open(dir, pebblestore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for id, jobs := range map[string]int{"large": 2000, "small": 3} {
		if _, _, err := store.Create(t.Context(), bulk.Spec{ID: id, Tenant: "t", Type: "echo"}); err != nil {
			t.Fatal(err)
		}
		payloads := make([][]byte, jobs)
		for i := range payloads {
			payloads[i] = []byte(`"payload"`)
		}
		if _, err := store.Append(t.Context(), id, 0, payloads); err != nil {
			t.Fatal(err)
		}
	}
	for _, move := range []bulk.Transition{{Kind: bulk.Seal, Total: 3}, {Kind: bulk.Pause}} {
		if _, err := store.Transition(t.Context(), "small", move); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openRedis opens the store of a healthy server, which may be slow to answer on a busy machine.
func openRedis(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), redisstore.Options{
		URL: url, Bulk: bulk.Config{}.WithDefaults(), Logger: slog.New(slog.DiscardHandler), CallTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// migrateTold runs the command.
func migrateTold(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	return clitest.Command(t, Command, append([]string{"bulk", "migrate"}, args...)...)
}

// The command prints a table of the migration, and says so when it is called again.
func TestMigrate(t *testing.T) {
	redis, dir := redistest.Start(t, redistest.Options{Persist: redistest.EverySecond}), stoppedServer(t)
	before, _ := os.ReadDir(dir)
	code, out, said := migrateTold(t, "--from", dir, "--to", redis.URL(), "--dry-run")
	if after, _ := os.ReadDir(dir); code != 0 || len(after) != len(before) || !strings.Contains(said, "nothing was changed") {
		t.Errorf("a dry run: %d\n%s%s", code, out, said)
	}
	if redis.Size() != 0 {
		t.Errorf("a dry run has made %d keys", redis.Size())
	}
	code, out, said = migrateTold(t, "--from", dir, "--to", redis.URL())
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 {
			fields[words[0]] = strings.Join(words[1:], " ")
		}
	}
	if code != 0 || fields["actions"] != "2 2" || fields["jobs"] != "2,003 2,003" || fields["payloads"] != "18 KiB" || !strings.Contains(said, "every action was compared") {
		t.Errorf("a move: %d\n%s%s", code, out, said)
	}
	code, out, said = migrateTold(t, "--from", dir, "--to", redis.URL(), "--json")
	var again migrated
	if err := json.Unmarshal([]byte(out), &again); err != nil || code != 0 || !again.Before || again.Jobs != 2003 || again.To != redis.URL() {
		t.Errorf("the same again: %d %v\n%s%s", code, err, out, said)
	}
	store := openRedis(t, redis.URL())
	defer store.Close()
	small, err := store.Action(t.Context(), "small")
	if err != nil || small.Status != bulk.Dispatched || !small.Paused || small.Pending != 3 {
		t.Errorf("the paused action is %+v, %v", small, err)
	}
	if received, err := store.Append(t.Context(), "large", 2000, [][]byte{[]byte("1")}); err != nil || received != 2001 {
		t.Errorf("the upload goes on with %d jobs, %v", received, err)
	}
}

// The command names data that it cannot migrate, and changes nothing.
func TestMigrateRefuses(t *testing.T) {
	redis, dir := redistest.Start(t, redistest.Options{Persist: redistest.EverySecond}), stoppedServer(t)
	store := openRedis(t, redis.URL())
	if _, _, err := store.Create(t.Context(), bulk.Spec{ID: "other", Tenant: "t", Type: "echo"}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--from", dir}, 2, "say where to: --to redis://host:6379"},
		{[]string{"--from", dir, "--to", "http://host"}, 2, "redis://host:6379"},
		{[]string{"--from", elsewhere, "--to", redis.URL()}, 1, "there is no store of bulk in it"},
		{[]string{"--from", dir, "--to", redis.URL()}, 1, "there are 1 actions already"},
		{[]string{"--from", dir, "--to", redis.URL(), "--dry-run"}, 1, "there are 1 actions already"},
	} {
		if code, out, said := migrateTold(t, test.args...); code != test.code || out != "" || !strings.Contains(said, test.says) {
			t.Errorf("%v: %d\n%s%s", test.args, code, out, said)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, pebblestore.MigrationFile)); err == nil {
		t.Error("the directory says that it is moved")
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("looking for a directory has made it")
	}
}

// On a terminal, progress is drawn in place; otherwise a line is written at intervals.
func TestMigrateProgress(t *testing.T) {
	m := &migration{summary: bulk.ImageSummary{Jobs: 4_000_000, Actions: 3}}
	got := m.progress(redisstore.ImportProgress{Actions: 1, Jobs: 1_000_000, Bytes: 96 << 20}, 100_000)
	if want := "1,000,000/4,000,000 jobs (25 %) · 1/3 actions · 96 MiB · 100,000/s · 30.0s left"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
	var drawn strings.Builder
	m.Err = term.Screen{Writer: &drawn, Size: func() (int, int) { return 60, 20 }}
	release := make(chan struct{})
	err := m.watch(progressOnce{release}.Progress, func() error { <-release; return fmt.Errorf("over") })
	if text := drawn.String(); err == nil || err.Error() != "over" || !strings.HasPrefix(text, "\r2,000,000/4,000,000 jobs (50 %)") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("it ends with %v, and has drawn %q", err, text)
	}
}

// progressOnce lets the work end once its progress has been read.
type progressOnce struct{ release chan struct{} }

func (p progressOnce) Progress() redisstore.ImportProgress {
	select {
	case <-p.release:
	default:
		close(p.release)
	}
	return redisstore.ImportProgress{Jobs: 2_000_000}
}
