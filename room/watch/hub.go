package watch

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
	"unique"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/internal/ranks"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room/engine"
)

// The bounds of streams.
const (
	// DefaultMaxStreams is the most open streams, unless WithMaxStreams sets another.
	DefaultMaxStreams = 20_000
	// MaxPerPlace is the most open streams of one place: tabs, and streams of a lost
	// connection that is not known to be lost yet.
	MaxPerPlace = 8
	// WriteTime is how long a connection may accept no byte.
	WriteTime = 2 * time.Second
	// heartbeat is the longest silence.
	heartbeat = 15 * time.Second
	// workers is how many batches are asked about at one time.
	workers = 4
	// askTime is how long one batch may take.
	askTime = 5 * time.Second
	// dueTime is the interval of looking for due streams, pulseTime for silent ones.
	dueTime   = 50 * time.Millisecond
	pulseTime = time.Second
	// retryTime is the delay before asking again after the store did not answer.
	retryTime = 2 * time.Second
	// minRetry and maxRetry bound the delay after which clients reconnect.
	minRetry, maxRetry = 2 * time.Second, 5 * time.Second
)

var (
	// ErrTooMany: the most streams are open, in all or of this place.
	ErrTooMany = errors.New("too many streams are open")
	// ErrClosed: the hub was stopped.
	ErrClosed = errors.New("the hub of streams is closed")
)

// Engine is what the hub needs of the room's engine.
type Engine interface {
	// AskAll returns a result for each asker, in their order.
	AskAll(ctx context.Context, name string, askers []engine.Asker, claim bool) []engine.Result
}

// Stream is what a stream shows.
type Stream struct {
	// Room is the name of the room, and Ticket the visitor's place in it.
	Room   string
	Ticket engine.Ticket
	// Claim lets a called visitor in at once; otherwise the event says that it was
	// called, and the claim window begins.
	Claim bool
	// Format appends the data of an event, without a line break. Default: the JSON of
	// the answer.
	Format func(b []byte, answer *engine.Answer) []byte
}

// Option changes what New makes.
type Option func(*Hub)

// WithMaxStreams sets the most open streams. Default: DefaultMaxStreams.
func WithMaxStreams(n int) Option { return func(h *Hub) { h.most = n } }

// Hub has the streams of an instance. It is a lifecycle.Service: start it before the
// HTTP server, and stop it after.
type Hub struct {
	engine  Engine
	most    int
	group   *lifecycle.Group
	metrics *metrics
	batches chan batch
	wake    chan struct{}

	mu      sync.Mutex
	stopped bool
	open    int // including those that Serve has reserved and not yet added
	places  map[place]int
	all     []*stream
	due     ranks.Heap[*stream] // by the time when they are due
}

var _ lifecycle.Service = (*Hub)(nil)

// place identifies the visitor of a stream.
type place struct {
	room   string
	number int64
}

func (s *Stream) place() place { return place{s.Room, s.Ticket.Number} }

// New returns a hub.
func New(engine Engine, options ...Option) *Hub {
	h := &Hub{
		engine:  engine,
		most:    DefaultMaxStreams,
		group:   lifecycle.NewGroup(context.Background()),
		batches: make(chan batch),
		wake:    make(chan struct{}, 1),
		places:  map[place]int{},
		due:     newSchedule(),
	}
	for _, option := range options {
		option(h)
	}
	h.metrics = newMetrics(h)
	return h
}

func newSchedule() ranks.Heap[*stream] {
	return ranks.New(func(s, o *stream) bool { return s.due.Before(o.due) }, func(s *stream) *int { return &s.at })
}

// Name implements lifecycle.Service.
func (h *Hub) Name() string { return "room streams" }

// Start begins to serve the streams.
func (h *Hub) Start(context.Context) error {
	h.group.Go("schedule", h.dispatch)
	h.group.Go("pulse", h.pulses)
	for range workers {
		h.group.Go("ask", h.work)
	}
	return nil
}

// Stop ends all streams. Their clients reconnect.
func (h *Hub) Stop(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	open := h.all
	h.all = nil
	for _, s := range open {
		s.slot = removed
		h.forget(s.spec.place())
	}
	h.due = newSchedule()
	h.mu.Unlock()
	for _, s := range open {
		s.end()
	}
	return h.group.Stop(ctx)
}

// Failed implements lifecycle.Service.
func (h *Hub) Failed() <-chan struct{} { return h.group.Failed() }

// Err implements lifecycle.Service.
func (h *Hub) Err() error { return h.group.Err() }

// Collector returns the hub's metrics.
func (h *Hub) Collector() prometheus.Collector { return h.metrics }

// Streams returns how many are open.
func (h *Hub) Streams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Serve answers a request with a stream. It keeps the headers that are set. It asks
// the engine once before it answers; an error means that nothing was written:
// ErrTooMany, ErrClosed, or that the place does not exist (*room.GoneError,
// room.ErrNoRoom, room.ErrBadTicket).
//
// Serve may return while the stream is open, with the connection hijacked: the caller
// must not use w after it.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, spec Stream) error {
	// The name refers to the memory of the request, which would live as long as the stream.
	spec.Room = unique.Make(spec.Room).Value()
	if err := h.reserve(spec.place()); err != nil {
		return err
	}
	if spec.Format == nil {
		spec.Format = func(b []byte, answer *engine.Answer) []byte { return answer.AppendJSON(b) }
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	first := h.engine.AskAll(ctx, spec.Room, []engine.Asker{{Ticket: spec.Ticket}}, spec.Claim)[0]
	cancel()
	if _, final := ended(first.Err); final {
		h.release(spec.place())
		return first.Err
	}
	writeHeader(w.Header())
	if r.Method == http.MethodHead {
		h.release(spec.place())
		w.WriteHeader(http.StatusOK)
		return nil
	}
	s := &stream{spec: spec}
	wait := s.take(w, r)
	s.begin(minRetry + rand.N(maxRetry-minRetry))
	h.add(s)
	h.deliver(s, &first)
	if wait != nil {
		wait(r.Context())
		h.drop(s)
	}
	return nil
}

// reserve counts a stream that is then added or released.
func (h *Hub) reserve(p place) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped:
		return ErrClosed
	case h.open >= h.most || h.places[p] >= MaxPerPlace:
		h.metrics.refused.Inc()
		return ErrTooMany
	}
	h.open++
	h.places[p]++
	return nil
}

func (h *Hub) release(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(p)
}

// forget counts one less. h.mu is held.
func (h *Hub) forget(p place) {
	h.open--
	if h.places[p]--; h.places[p] == 0 {
		delete(h.places, p)
	}
}

// add registers a stream that was reserved.
func (h *Hub) add(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		h.forget(s.spec.place())
		s.slot = removed
		defer s.end()
		return
	}
	s.slot = len(h.all)
	h.all = append(h.all, s)
}

// drop ends a stream. It is idempotent.
func (h *Hub) drop(s *stream) {
	h.mu.Lock()
	if s.slot == removed {
		h.mu.Unlock()
		return
	}
	last := h.all[len(h.all)-1]
	h.all[s.slot] = last
	last.slot = s.slot
	h.all[len(h.all)-1] = nil
	h.all = h.all[:len(h.all)-1]
	s.slot = removed
	h.due.Remove(s)
	h.forget(s.spec.place())
	h.mu.Unlock()
	s.end()
}

// metrics are those of a hub. It is a prometheus.Collector.
type metrics struct {
	open                  prometheus.GaugeFunc
	events, refused, slow prometheus.Counter
}

func newMetrics(h *Hub) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "room_" + name, Help: help})
	}
	return &metrics{
		open: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "room_streams", Help: "Event streams that are open.",
		}, func() float64 { return float64(h.Streams()) }),
		events:  counter("stream_events_total", "Events written to streams."),
		refused: counter("streams_refused_total", "Streams refused because the most were open."),
		slow:    counter("streams_slow_total", "Streams closed because the client did not read."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.open, m.events, m.refused, m.slow} {
		c.Collect(out)
	}
}
