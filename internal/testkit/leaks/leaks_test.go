package leaks

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestAGoroutineThatEndsLateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		go func() { <-time.After(5 * time.Second) }()
		if goleak.Find(before) == nil {
			t.Error("it has ended early")
		}
		if err := none(func() error { return goleak.Find(before) }); err != nil {
			t.Error(err)
		}
	})
}

func TestAGoroutineThatStaysIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, found := time.Now(), errors.New("a goroutine")
		err := none(func() error {
			<-time.After(time.Second)
			return found
		})
		if took := time.Since(begin); !errors.Is(err, found) || took < limit || took > limit+2*time.Second {
			t.Errorf("%v after %v, want what was found, after %v", err, took, limit)
		}
	})
}
