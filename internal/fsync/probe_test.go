package fsync_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/internal/fsync"
)

// probed starts a probe of a slow disk, which the test's end stops.
func probed(t *testing.T) *slow {
	t.Helper()
	s := newSlow()
	probe := fsync.NewProbe(s.fs, "FSYNC", s.to)
	if err := probe.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := probe.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A store that nobody can watch writes nothing here, and its slow disk is said all the same, within six seconds.
func TestProbeSaysThatTheDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probed(t)
		synctest.Wait()
		s.wantCheck(t, "after the first probe")
		s.takes(20 * time.Second)
		time.Sleep(fsync.ProbeInterval + fsync.Slow + time.Millisecond)
		s.wantCheck(t, "while one goes on", "topic", "FSYNC", "has gone on for 1s")
		time.Sleep(20 * time.Second)
		s.wantCheck(t, "after it", "topic", "took 20s")
		s.takes(0)
		time.Sleep(time.Minute)
		s.wantCheck(t, "a minute after the last slow one")
		synctest.Wait()
		if lines := strings.Count(s.log.String(), "the disk is slow"); lines != 1 {
			t.Errorf("%d lines in the log, want 1:\n%s", lines, s.log.String())
		}
	})
}

// A probe writes in place: its file does not grow, and shows when it was written.
func TestProbeWritesInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probed(t)
		time.Sleep(10*fsync.ProbeInterval + time.Millisecond)
		f, err := s.fs.Open("FSYNC")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if want := time.Now().UTC().Format(time.RFC3339) + "\n"; string(text) != want {
			t.Errorf("the file has %q, want %q", text, want)
		}
		if n := testutil.CollectAndCount(s, "disk_fsync_duration_ms"); n != 1 {
			t.Errorf("%d histograms, want that of the store", n)
		}
	})
}

// A probe that fails is logged once until one works, and the next come.
func TestProbeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probed(t)
		for range 2 {
			s.disk.Before(func(string) error { return os.ErrPermission })
			time.Sleep(10 * fsync.ProbeInterval)
			s.disk.Before(nil)
			time.Sleep(2 * fsync.ProbeInterval)
		}
		synctest.Wait()
		if lines := strings.Count(s.log.String(), os.ErrPermission.Error()); lines != 2 {
			t.Errorf("%d lines in the log, want one for each time that it began:\n%s", lines, s.log.String())
		}
	})
}
