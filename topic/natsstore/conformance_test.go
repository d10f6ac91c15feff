package natsstore_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/natsstore"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// dirs remembers the directory of each open store.
type dirs map[topic.Store]string

func open(t testing.TB, dir string, options natsstore.Options) *natsstore.Store {
	t.Helper()
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := natsstore.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d dirs) open(t testing.TB, dir string) topic.Store {
	t.Helper()
	s := open(t, dir, natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
	d[s] = dir
	return s
}

func (d dirs) close(t testing.TB, s topic.Store) string {
	t.Helper()
	dir := d[s]
	delete(d, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestConformance runs the suite. Crash copies the directory while the store is
// open, as a process that is killed leaves it.
func TestConformance(t *testing.T) {
	d := dirs{}
	storetest.Run(t, storetest.Factory{
		Open:   func(t testing.TB) topic.Store { return d.open(t, t.TempDir()) },
		Reopen: func(t testing.TB, s topic.Store) topic.Store { return d.open(t, d.close(t, s)) },
		Crash: func(t testing.TB, s topic.Store) topic.Store {
			left := filepath.Join(t.TempDir(), "left")
			if err := os.CopyFS(left, os.DirFS(d[s])); err != nil {
				t.Fatal(err)
			}
			d.close(t, s)
			return d.open(t, left)
		},
	})
}
