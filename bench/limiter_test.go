package bench

import (
	"testing"
	"time"
)

// Each tenant may start its rate in each window; a refused start returns the time until the next
// window.
func TestLimiter(t *testing.T) {
	l := newLimiter(Workload{Tenants: 2, Rate: 2})
	second := time.Unix(1_700_000_000, 0)
	tests := []struct {
		tenant int
		at     time.Duration
		wait   time.Duration
	}{
		{0, 100 * time.Millisecond, 0},
		{0, 200 * time.Millisecond, 0},
		{0, 300 * time.Millisecond, 700 * time.Millisecond},
		{1, 300 * time.Millisecond, 0},
		{0, time.Second, 0},
		{0, 1999 * time.Millisecond, 0},
		{0, 1999 * time.Millisecond, time.Millisecond},
		{0, 2 * time.Second, 0},
	}
	for i, test := range tests {
		wait, err := l.start(Batch(test.tenant, 1)[0], second.Add(test.at))
		if err != nil || wait != test.wait {
			t.Errorf("start %d of tenant %d at %s: wait %s, %v; want %s", i, test.tenant, test.at, wait, err, test.wait)
		}
	}
	if got := l.throttled.Load(); got != 2 {
		t.Errorf("%d throttled, want 2", got)
	}
	if _, err := l.start([]byte("{"), second); err == nil {
		t.Error("a broken payload is no error")
	}
}

// Without a rate everything may start.
func TestNoLimit(t *testing.T) {
	l := newLimiter(Workload{Tenants: 1})
	for range 1000 {
		if wait, err := l.start(Batch(0, 1)[0], time.Unix(0, 0)); wait != 0 || err != nil {
			t.Fatalf("wait %s, %v", wait, err)
		}
	}
}
