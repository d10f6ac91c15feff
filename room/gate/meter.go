package gate

import (
	"net/http"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room/engine"
)

// Meter counts how upstreams answer the requests of visitors inside, by their room. The zero value
// is ready to use.
type Meter struct {
	mu    sync.Mutex
	rooms map[string]*engine.Upstream
	last  time.Time
}

// Take returns what was counted since the last call, of the rooms that had requests.
func (m *Meter) Take() map[string]engine.Upstream {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	length := now.Sub(m.last)
	first := m.last.IsZero()
	m.last = now
	taken := map[string]engine.Upstream{}
	for name, counts := range m.rooms {
		if *counts == (engine.Upstream{}) {
			delete(m.rooms, name)
			continue
		}
		if !first {
			counts.Length = length
			taken[name] = *counts
		}
		*counts = engine.Upstream{InFlight: counts.InFlight}
	}
	return taken
}

// count changes the counts of a room.
func (m *Meter) count(name string, change func(*engine.Upstream)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := m.rooms[name]
	if counts == nil {
		if m.rooms == nil {
			m.rooms = map[string]*engine.Upstream{}
		}
		counts = &engine.Upstream{}
		m.rooms[name] = counts
	}
	change(counts)
}

// metered is a transport to an upstream whose answers a meter counts.
type metered struct {
	http.RoundTripper
	meter *Meter
}

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(r *http.Request) (*http.Response, error) {
	name := r.Header.Get(RoomHeader)
	if name == "" {
		return t.RoundTripper.RoundTrip(r)
	}
	began := time.Now()
	t.meter.count(name, func(u *engine.Upstream) {
		u.Started++
		u.InFlight++
	})
	answer, err := t.RoundTripper.RoundTrip(r)
	took := time.Since(began)
	t.meter.count(name, func(u *engine.Upstream) {
		u.InFlight--
		switch {
		case r.Context().Err() != nil: // The visitor has gone.
		case err != nil || tooBusy[answer.StatusCode]:
			u.Refused++
		default:
			u.Answered++
			u.Took += took
		}
	})
	return answer, err
}

// tooBusy has the statuses of an upstream that has too much to do.
var tooBusy = map[int]bool{
	http.StatusTooManyRequests: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}
