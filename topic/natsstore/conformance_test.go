package natsstore_test

import (
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/natsstore"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		child(dir)
		return
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6") // most tests wait for elections
	}
	rapidtest.Checks(10, 20)
	natsstore.WaitForLeaders()
	// The engine leaves a stream's files open, now and then, if the stream is removed while it is made.
	leaks.Main(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
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

func (d dirs) open(t testing.TB, dir string, prepare func(*natsstore.Store)) topic.Store {
	t.Helper()
	s := open(t, dir, natsstore.Options{Logger: slog.New(slog.DiscardHandler), Timeout: until.Limit})
	prepare(s)
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

// factory opens stores in directories. Crash copies the directory while the store
// is open, as a process that is killed leaves it.
func factory(prepare func(*natsstore.Store)) storetest.Factory {
	d := dirs{}
	return storetest.Factory{
		Open:   func(t testing.TB) topic.Store { return d.open(t, t.TempDir(), prepare) },
		Reopen: func(t testing.TB, s topic.Store) topic.Store { return d.open(t, d.close(t, s), prepare) },
		Crash: func(t testing.TB, s topic.Store) topic.Store {
			left := copyOf(t, d[s])
			d.close(t, s)
			return d.open(t, left, prepare)
		},
	}
}

// copyOf copies a directory in use. It starts over if a file is removed during the copy.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	var err error
	for range 20 {
		left := filepath.Join(t.TempDir(), "left")
		err = os.CopyFS(left, os.DirFS(dir))
		if err == nil {
			return left
		}
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	t.Fatal(err)
	return ""
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, factory(func(*natsstore.Store) {}))
}

// TestConformanceCleaned runs the part about metadata while its log is cleaned
// all the time.
func TestConformanceCleaned(t *testing.T) {
	t.Parallel()
	storetest.RunMeta(t, factory(natsstore.CleanAtOnce))
}

// TestMade runs the part about logs that begin at a sequence.
func TestMade(t *testing.T) {
	t.Parallel()
	storetest.RunMade(t, factory(func(*natsstore.Store) {}))
}
