package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff checks that a loop whose store fails pauses longer each time, up to a bound,
// and logs the failure once a minute; that it logs the recovery once, without a pause; and that an
// iteration that was interrupted is no failure.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		var loop backoff
		if pause := loop.after(log, "fetch", nil); pause != 0 || text.Len() > 0 {
			t.Errorf("a pause of %v, and %q, though nothing failed", pause, text.String())
		}
		if pause := loop.after(log, "fetch", fmt.Errorf("fetch: %w", context.Canceled)); pause != backoffBase || text.Len() > 0 {
			t.Errorf("after an interruption a pause of %v, and %q", pause, text.String())
		}
		began, last := time.Now(), time.Duration(0)
		for time.Since(began) < 150*time.Second {
			last = loop.after(log, "fetch", errors.New("away"), "type", "echo")
			if last < backoffBase/2 || last > backoffCap {
				t.Fatalf("a pause of %v, want from %v to %v", last, backoffBase/2, backoffCap)
			}
			time.Sleep(last)
		}
		if last < backoffCap/2 {
			t.Errorf("a pause of %v after two minutes, want about %v", last, backoffCap)
		}
		if told := strings.Count(text.String(), "level=ERROR"); told != 3 {
			t.Errorf("%d errors logged in two and a half minutes, want 3: %s", told, text.String())
		}
		for range 2 {
			if pause := loop.after(log, "fetch", nil); pause != 0 {
				t.Errorf("a pause of %v after the store is back", pause)
			}
		}
		if told := strings.Count(text.String(), "fetch goes on"); told != 1 {
			t.Errorf("the recovery was logged %d times: %s", told, text.String())
		}
	})
}
