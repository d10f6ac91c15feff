package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Waits is how long visitors waited who were called within the last WaitsSpan, as far as this instance has seen them
// enter and come back: half of them up to P50, 95 of 100 up to P95. Of counts them.
type Waits struct {
	P50, P95 time.Duration
	Of       int
}

// WaitsSpan is how long a wait that has ended counts.
const WaitsSpan = 10 * time.Minute

// The bounds of one room: about 20 KiB while there is a line.
const (
	// maxTracked is how many visitors are watched until they are called. If more wait, those are whose number is
	// divisible by a power of two.
	maxTracked = 256
	// maxWaits is how many waits are kept, and maxTracking how long a visitor is watched: some never ask again.
	maxWaits    = 256
	maxTracking = 24 * time.Hour
)

// waited measures the waits of a room. It is safe for concurrent use.
type waited struct {
	// skip is the power of two less one.
	skip atomic.Int64

	mu      sync.Mutex
	entered map[int64]time.Time // by number
	ended   []endedWait         // the oldest first
}

type endedWait struct {
	at   time.Time
	took time.Duration
}

// see takes the place that a visitor was told.
func (w *waited) see(p *room.Place) {
	if p.Number&w.skip.Load() != 0 || !p.New && p.State == room.Waiting { // who still waits tells nothing
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	since, tracked := w.entered[p.Number]
	switch {
	case p.New && p.State == room.Waiting:
		w.track(p.Number, p.Now)
	case p.New && (p.State == room.Called || p.State == room.Inside):
		w.end(p.Now, 0)
	case tracked && p.State != room.Waiting:
		delete(w.entered, p.Number)
		if p.State != room.Gone {
			w.end(p.Now, p.Since.Sub(since))
		}
	}
}

func (w *waited) track(number int64, now time.Time) {
	if w.entered == nil {
		w.entered = map[int64]time.Time{}
	}
	for len(w.entered) >= maxTracked {
		skip := 2*w.skip.Load() + 1
		for of, since := range w.entered {
			if of&skip != 0 || now.Sub(since) > maxTracking {
				delete(w.entered, of)
			}
		}
		w.skip.Store(skip)
	}
	if number&w.skip.Load() == 0 {
		w.entered[number] = now
	}
}

func (w *waited) end(now time.Time, took time.Duration) {
	w.ended = append(w.ended[max(0, len(w.ended)-maxWaits+1):], endedWait{now, max(took, 0)})
}

// empty is called when nobody waited at a time, or was called and had not come: all who enter from then on are watched.
func (w *waited) empty(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.entered, func(_ int64, since time.Time) bool { return since.Before(at) })
	w.skip.Store(0)
}

// now returns the waits, or nil if none has ended lately.
func (w *waited) now(now time.Time) *Waits {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took []time.Duration
	for _, e := range w.ended {
		if now.Sub(e.at) < WaitsSpan {
			took = append(took, e.took)
		}
	}
	n := len(took)
	if n == 0 {
		return nil
	}
	slices.Sort(took)
	return &Waits{P50: took[(n-1)/2], P95: took[(n*95+99)/100-1], Of: n}
}
