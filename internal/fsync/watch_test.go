package fsync_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/internal/testkit/disktest"
)

const category = "test"

// slow is a watched disk whose fsyncs take as long as a test says.
type slow struct {
	*fsync.Watch
	log  bytes.Buffer
	to   *slog.Logger
	disk *disktest.Syncing
	fs   vfs.FS
}

func newSlow() *slow {
	s := &slow{disk: disktest.NewSyncing(vfs.NewCrashableMem())}
	s.to = slog.New(slog.NewTextHandler(&s.log, nil))
	s.Watch = fsync.NewWatch(s.to)
	s.fs = s.Over("topic", s.disk)
	return s
}

func (s *slow) takes(d time.Duration) {
	s.disk.Before(func(string) error { time.Sleep(d); return nil })
}

func (s *slow) create(t *testing.T, name string) vfs.File {
	t.Helper()
	f, err := s.fs.Create(name, category)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *slow) wantCheck(t *testing.T, when string, parts ...string) {
	t.Helper()
	err := s.Check(t.Context())
	if (err == nil) != (len(parts) == 0) {
		t.Fatalf("%s: check says %v", when, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", when, err, part)
		}
	}
}

// An fsync that takes too long is said while it goes on, and for a while after.
func TestSlowFsyncIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		f := s.create(t, "a.log")
		sync := func(took time.Duration) {
			s.takes(took)
			if err := f.SyncData(); err != nil {
				t.Fatal(err)
			}
		}
		sync(900 * time.Millisecond)
		s.wantCheck(t, "after one of 0.9 s")
		done := make(chan struct{})
		go func() { defer close(done); sync(5 * time.Second) }()
		time.Sleep(900 * time.Millisecond)
		s.wantCheck(t, "after 0.9 s of it")
		time.Sleep(2100 * time.Millisecond)
		s.wantCheck(t, "after 3 s of it", "topic", "a.log", "for 3s")
		<-done
		s.wantCheck(t, "after it", "topic", "took 5s", "0s ago")
		time.Sleep(59 * time.Second)
		s.wantCheck(t, "a minute later", "took 5s", "59s ago")
		time.Sleep(time.Second)
		s.wantCheck(t, "after that")
		want := `# HELP disk_slow_fsyncs_total Fsyncs that have taken a second or more, counted when they have, by store.
# TYPE disk_slow_fsyncs_total counter
disk_slow_fsyncs_total{store="topic"} 1
`
		if err := testutil.CollectAndCompare(s, strings.NewReader(want), "disk_slow_fsyncs_total"); err != nil {
			t.Error(err)
		}
	})
}

// However many fsyncs are slow, the log says it once a minute.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		f := s.create(t, "a.log")
		s.takes(1500 * time.Millisecond)
		for range 100 { // 150 s
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if lines := strings.Count(s.log.String(), "the disk is slow"); lines != 3 {
			t.Errorf("%d lines in 150 s, want 3:\n%s", lines, s.log.String())
		}
	})
}

// All ways to write a file are watched, and all their fsyncs are in the metric: of files made, reused and opened, and of folders.
func TestAllFsyncsAreMeasured(t *testing.T) {
	t.Parallel()
	s := newSlow()
	made := s.create(t, "made")
	reused := s.create(t, "old")
	if err := reused.Close(); err != nil {
		t.Fatal(err)
	}
	reused, err := s.fs.ReuseForWrite("old", "new", category)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := s.fs.OpenReadWrite("made", category)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := s.fs.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, sync := range []func() error{made.Sync, made.SyncData, reused.Sync, reused.SyncData, opened.Sync, opened.SyncData, folder.Sync} {
		if err := sync(); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if h := family.GetMetric()[0].GetHistogram(); h != nil && h.GetSampleCount() == 7 {
			return
		}
	}
	t.Errorf("no histogram has 7 fsyncs: %v", families)
}

// A failed fsync fails; and the file descriptor is that of the file, since stores write with it.
func TestFilesAreAsBefore(t *testing.T) {
	t.Parallel()
	s := newSlow()
	f := s.create(t, "a.log")
	s.disk.Before(func(string) error { return os.ErrClosed })
	if err := f.Sync(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a failed fsync: %v", err)
	}
	real, err := s.FS("bulk").Create(filepath.Join(t.TempDir(), "file"), category)
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	if real.Fd() == vfs.InvalidFd {
		t.Error("the file has no descriptor")
	}
}

func BenchmarkWatch(b *testing.B) {
	disk := vfs.NewMem()
	for name, fs := range map[string]vfs.FS{"bare": disk, "watched": fsync.NewWatch(slog.New(slog.DiscardHandler)).Over("topic", disk)} {
		b.Run(name, func(b *testing.B) {
			f, err := fs.Create(name, category)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := f.SyncData(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
