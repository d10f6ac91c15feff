package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A directory that a newer version has written is refused with what to do, and is not changed: this version opens it once the number
// is back.
func TestNewerFormatsAreRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, forEver...)
	s.env = append(s.env, "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
	s.start()
	s.token("viewer", "viewer")
	s.terminate()
	for name, c := range map[string]struct {
		raise func(t *testing.T, data string) (back func())
		says  string
	}{
		"jobs":               {inPebble(".", "Mversion"), "use the version of sluice that wrote it"},
		"rooms":              {inPebble("room", "Mversion"), "use the version of sluice that wrote it"},
		"metadata of topics": {inPebble("topic/meta", "f"), "use the version of sluice that wrote it"},
		"topics":             {inFile("topic/FORMAT", "format 1", "format 2"), "with the release that made it"},
		"accounts":           {inFile("access.json", `"format":1`, `"format":9`), "run the release that wrote it"},
	} {
		t.Run(name, func(t *testing.T) {
			back := c.raise(t, s.data)
			ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
			defer cancel()
			command := exec.CommandContext(ctx, binary, "serve", "--data", s.data, "--http", s.addr, "--kafka", s.kafka)
			command.Env = append(os.Environ(), s.env...)
			if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), c.says) {
				t.Errorf("the start: %v, %s; want it refused with %q", err, out, c.says)
			}
			back()
		})
	}
	s.start()
	s.terminate()
}

// inPebble raises the number at a key of a database, to one that no version has.
func inPebble(folder, key string) func(*testing.T, string) func() {
	return func(t *testing.T, data string) func() {
		t.Helper()
		put := func(value []byte) (before []byte) {
			db, err := pebble.Open(filepath.Join(data, folder), &pebble.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			stored, closer, err := db.Get([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			before = append(before, stored...)
			closer.Close()
			if err := db.Set([]byte(key), value, pebble.Sync); err != nil {
				t.Fatal(err)
			}
			return before
		}
		before := put([]byte{99}) // as a varint too
		return func() { put(before) }
	}
}

// inFile replaces the number in a file.
func inFile(name, number, newer string) func(*testing.T, string) func() {
	return func(t *testing.T, data string) func() {
		t.Helper()
		path := filepath.Join(data, name)
		content, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(content), number) {
			t.Fatalf("%s has no %s: %s %v", path, number, content, err)
		}
		writeFile(t, path, strings.Replace(string(content), number, newer, 1))
		return func() { writeFile(t, path, string(content)) }
	}
}
