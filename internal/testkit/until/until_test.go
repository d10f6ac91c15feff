package until

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// fatal is a test that records how it failed.
type fatal struct {
	testing.TB
	failed bool
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(string, ...any) {
	f.failed = true
	runtime.Goexit()
}

func TestSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		Succeeds(t, "third call", func() error {
			if calls++; calls < 3 {
				return errors.New("too early")
			}
			return nil
		})
		if calls != 3 {
			t.Errorf("%d calls, want 3", calls)
		}
		begin, failing := time.Now(), &fatal{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			True(failing, "never", func() bool { return false })
		}()
		<-ended
		if took := time.Since(begin); !failing.failed || took < Limit || took > Limit+time.Second {
			t.Errorf("failed: %v after %v, want a failure after %v", failing.failed, took, Limit)
		}
	})
}
