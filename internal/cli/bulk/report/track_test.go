package report

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

func TestTrackerWaitAndHalf(t *testing.T) {
	start := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	action := func(done int64) bulk.Action {
		return bulk.Action{
			Spec: bulk.Spec{Tenant: "t"}, Status: bulk.Running, Total: 1_000_000, EnteredAt: start,
			Counts: bulk.Counts{Received: 1_000_000, Succeeded: done},
		}
	}
	tracked := NewTracker(start, 2)
	for i := range int64(4000) {
		tracked.Observe(start.Add(time.Duration(i)*time.Second), []bulk.Action{action(i), action(2 * max(0, i-1000))})
	}
	if len(tracked.samples) > mostSamples {
		t.Fatalf("%d samples are kept", len(tracked.samples))
	}
	for _, at := range []int64{10, 100, 500, 3000} {
		got := tracked.DoneAt(start.Add(time.Duration(at) * time.Second))
		if want := float64(at); got[0] < want-1 || got[0] > want+1 {
			t.Errorf("done at %d s: %v, want %g", at, got, want)
		}
	}
	first, second := action(4000), action(6000)
	if got := tracked.Wait(0, &first); got != time.Second {
		t.Errorf("wait %s, want 1s", got)
	}
	if got := tracked.Wait(1, &second); got != 1001*time.Second {
		t.Errorf("wait %s, want 1001s", got)
	}
	second.FinishedAt = start.Add(7 * time.Second)
	if got := tracked.Wait(1, &second); got != 7*time.Second {
		t.Errorf("wait %s of an action that ended between two looks, want 7s", got)
	}
}
