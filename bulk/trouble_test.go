package bulk

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A loop whose store fails pauses ever longer, up to a bound, and tells of it once a
// minute; when the store is back it tells once, and does not pause.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		var of trouble
		if pause := of.after(log, "fetch", nil); pause != 0 || text.Len() > 0 {
			t.Errorf("a pause of %v, and %q, though nothing failed", pause, text.String())
		}
		began, last := time.Now(), time.Duration(0)
		for time.Since(began) < 150*time.Second {
			last = of.after(log, "fetch", errors.New("away"), "type", "echo")
			if last < troubleBase/2 || last > troubleCap {
				t.Fatalf("a pause of %v, want from %v to %v", last, troubleBase/2, troubleCap)
			}
			time.Sleep(last)
		}
		if last < troubleCap/2 {
			t.Errorf("a pause of %v after two minutes, want about %v", last, troubleCap)
		}
		if told := strings.Count(text.String(), "level=ERROR"); told != 3 {
			t.Errorf("it told %d times in two and a half minutes, want 3: %s", told, text.String())
		}
		for range 2 {
			if pause := of.after(log, "fetch", nil); pause != 0 {
				t.Errorf("a pause of %v when all is well again", pause)
			}
		}
		if told := strings.Count(text.String(), "fetch goes on"); told != 1 {
			t.Errorf("it told %d times that it goes on: %s", told, text.String())
		}
	})
}
