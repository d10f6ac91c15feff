package bench

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// limiter lets each tenant start so many jobs in each fixed window of a second:
// what a handler of a queue that knows no tenants checks for itself.
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

// start counts a start, or says how long it is until the next window.
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
