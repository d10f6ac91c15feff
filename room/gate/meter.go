package gate

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Meter counts how an upstream answers the requests of visitors inside: those that carry a pass.
// The zero value is ready to use.
type Meter struct {
	started, answered, refused, inFlight atomic.Int64
	took                                 atomic.Int64 // nanoseconds
	last                                 time.Time
}

// Take returns what was counted since the last call, or the first. One goroutine may call it.
func (m *Meter) Take() room.Upstream {
	now := time.Now()
	length := now.Sub(m.last)
	if m.last.IsZero() {
		length = 0
	}
	m.last = now
	return room.Upstream{
		Length: length, Started: m.started.Swap(0), Answered: m.answered.Swap(0), Refused: m.refused.Swap(0),
		InFlight: m.inFlight.Load(), Took: time.Duration(m.took.Swap(0)),
	}
}

// metered is a transport to an upstream whose answers a meter counts.
type metered struct {
	http.RoundTripper
	meter *Meter
}

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get(PassHeader) == "" {
		return t.RoundTripper.RoundTrip(r)
	}
	m, began := t.meter, time.Now()
	m.started.Add(1)
	m.inFlight.Add(1)
	answer, err := t.RoundTripper.RoundTrip(r)
	m.inFlight.Add(-1)
	switch {
	case r.Context().Err() != nil: // The visitor has gone.
	case err != nil || tooBusy[answer.StatusCode]:
		m.refused.Add(1)
	default:
		m.answered.Add(1)
		m.took.Add(int64(time.Since(began)))
	}
	return answer, err
}

// tooBusy has the statuses of an upstream that has too much to do.
var tooBusy = map[int]bool{
	http.StatusTooManyRequests: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}
