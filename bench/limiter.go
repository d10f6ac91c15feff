package bench

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// limiter limits how many jobs of each tenant start in each fixed window of a second. Handlers of
// queues without tenants use it.
type limiter struct {
	rate      int
	throttled atomic.Int64

	mu      sync.Mutex
	windows []window
}

type window struct {
	began   time.Time
	started int
}

// newLimiter returns the limiter of a workload.
func newLimiter(workload Workload) *limiter {
	return &limiter{rate: workload.Rate, windows: make([]window, workload.Tenants)}
}

// start counts a start, or returns the time until the next window.
func (l *limiter) start(raw []byte, now time.Time) (wait time.Duration, err error) {
	if l.rate == 0 {
		return 0, nil
	}
	var job payload
	if err := json.Unmarshal(raw, &job); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.windows[job.Tenant]
	if began := now.Truncate(time.Second); began.After(w.began) {
		*w = window{began: began}
	}
	if w.started == l.rate {
		l.throttled.Add(1)
		return nextWindow(now).Sub(now), nil
	}
	w.started++
	return 0, nil
}
