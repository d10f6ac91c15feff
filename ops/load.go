package ops

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// The bounds of a Load.
const (
	// newPerProcessor is how many requests that bring new work are in progress for each processor: they wait for the
	// disk together, so that it is many. joinsPerProcessor are those of newcomers at gates, which need the processor more, as
	// they are answered with a page. readsPerProcessor are those that read: they need the processor alone.
	newPerProcessor, joinsPerProcessor, readsPerProcessor = 64, 16, 4
	// loadPatience is how long a request waits for its turn, if few wait.
	loadPatience = time.Second
	// refusalsPerProcessor is how many refused requests each processor answers in a second, so that clients who come
	// again at once cannot use it up. While more wait for their turn than that, they wait longer.
	refusalsPerProcessor = 500
	// clientTime is how long a request keeps its turn while it waits for its client.
	clientTime = 50 * time.Millisecond
	// wakeTime is how long a request that needs the processor alone sleeps after it was woken. Go runs what the present
	// goroutine has woken before what the network has: requests that woke one another without a pause would keep all
	// others, those that go on with accepted work too, from running. Where they wait for the disk, that is the pause.
	wakeTime = 500 * time.Microsecond
	// loadRetry is when those who were refused are asked to come again.
	loadRetry = 2 * time.Second
	// smallBody is a body that needs no memory of the Load; bodyCost is how often a longer one is in memory while it
	// is decoded and stored.
	smallBody, bodyCost = 64 << 10, 4
	// leastBodyMemory lets the longest bodies of the API in, one at a time.
	leastBodyMemory = 16 << 20
)

// Load bounds the requests in progress at all servers that share it, so that those which go on with accepted work are
// served as if there were no others. A request waits for its turn, and is refused before its body is read. It does not
// count while it waits for its client: for the body, or until an answer is received. Each part of the API has turns of its own.
type Load struct {
	joins, bodies share
	refused       *prometheus.CounterVec
}

// partLoad has the turns of a part.
type partLoad struct {
	*Load
	fresh, reads share
}

// NewLoad returns a load whose long bodies take at most that much memory, in bytes, which are at least 16 MiB.
func NewLoad(bodyMemory int64) *Load {
	return &Load{
		joins: newShare(perProcessor(joinsPerProcessor), wakeTime), bodies: newShare(max(bodyMemory, leastBodyMemory), 0),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_requests_refused_total",
			Help: "Requests that were refused because others were in progress, by what was used up: new (requests that bring new work), joins (newcomers at a gate), reads, or bodies (the memory for long ones).",
		}, []string{"bound"}),
	}
}

func perProcessor(n int) int64 { return int64(n * runtime.GOMAXPROCS(0)) }

// Part implements edge.Load.
func (l *Load) Part(string) edge.Turns {
	return &partLoad{l, newShare(perProcessor(newPerProcessor), 0), newShare(perProcessor(readsPerProcessor), wakeTime)}
}

// Begin implements edge.Turns.
func (l *partLoad) Begin(w http.ResponseWriter, r *http.Request, mostBody int64) *edge.Error {
	size := r.ContentLength
	if size < 0 || size > mostBody { // unknown, or to be refused once so much was read
		size = mostBody
	}
	a := w.(*reply)
	if size > smallBody && !a.take(r.Context(), &l.bodies, &a.memory, min(size*bodyCost, l.bodies.most)) {
		return l.refuse("bodies", "the memory for long bodies is used up")
	}
	turns, bound, why := &l.fresh, "new", "too many requests that bring new work are in progress"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		turns, bound, why = &l.reads, "reads", "too many requests that read are in progress"
	}
	if !a.take(r.Context(), turns, &a.turn, 1) {
		return l.refuse(bound, why)
	}
	return nil
}

func (l *Load) refuse(bound, why string) *edge.Error {
	l.refused.WithLabelValues(bound).Inc()
	return edge.Refuse(http.StatusServiceUnavailable, problem.Busy, why+": nothing was done, send it again").RetryAfter(loadRetry)
}

// Join waits until a newcomer at a gate may join, and reports whether that is so; leave ends it.
func (l *Load) Join(ctx context.Context) (leave func(), joins bool) {
	if !l.joins.take(ctx, 1) {
		l.refused.WithLabelValues("joins").Inc()
		return nil, false
	}
	return func() { l.joins.give(1) }, true
}

// Describe implements prometheus.Collector.
func (l *Load) Describe(to chan<- *prometheus.Desc) { l.refused.Describe(to) }

// Collect implements prometheus.Collector.
func (l *Load) Collect(to chan<- prometheus.Metric) { l.refused.Collect(to) }

// share is an amount that requests take from. Taking what is free costs an atomic operation.
type share struct {
	most          int64
	pause         time.Duration // of a request that was woken
	used, waiting atomic.Int64
	freed         chan struct{}
}

func newShare(most int64, pause time.Duration) share {
	return share{most: most, pause: pause, freed: make(chan struct{}, 256)}
}

// take waits until n is free, and reports whether it has taken it. It gives up in time.
func (s *share) take(ctx context.Context, n int64) bool {
	if s.waiting.Load() == 0 && s.takeFree(n) {
		return true
	}
	waiting := s.waiting.Add(1)
	defer s.waiting.Add(-1)
	timeout := time.NewTimer(max(loadPatience, time.Duration(waiting)*time.Second/time.Duration(refusalsPerProcessor*runtime.GOMAXPROCS(0))))
	defer timeout.Stop()
	if waiting == 1 && s.takeFree(n) { // it was given back in the meantime, and nobody was woken
		return true
	}
	for {
		select {
		case <-s.freed:
			time.Sleep(s.pause)
			if s.takeFree(n) {
				s.wake()
				return true
			}
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (s *share) takeFree(n int64) bool {
	for used := s.used.Load(); used+n <= s.most; used = s.used.Load() {
		if s.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
	return false
}

// give gives n back. One who waits tries again and, if that leaves something free, wakes the next.
func (s *share) give(n int64) {
	s.used.Add(-n)
	s.wake()
}

// wake wakes one of those who wait, if there is something for them.
func (s *share) wake() {
	if s.waiting.Load() > 0 && s.used.Load() < s.most {
		select {
		case s.freed <- struct{}{}:
		default: // as many as that have been woken
		}
	}
}

// taken is what a request has of a share; nil: nothing.
type taken struct {
	of *share
	n  int64
}

// take takes from a share until the request ends.
func (a *reply) take(ctx context.Context, s *share, t *taken, n int64) bool {
	if !s.take(ctx, n) {
		return false
	}
	*t = taken{s, n}
	return true
}

// give gives back what a request has taken.
func (t *taken) give() {
	if t.of != nil {
		t.of.give(t.n)
	}
}

// awaitClient calls f, which may wait for the client. One that takes clientTime takes no turn of others. Most do not
// wait at all, and to pass the turn on with each piece would begin a request for each.
func (a *reply) awaitClient(f func()) {
	turns := a.turn.of
	if turns == nil {
		f()
		return
	}
	slow := time.AfterFunc(clientTime, func() { turns.give(1) })
	f()
	if !slow.Stop() {
		turns.used.Add(1) // it has begun, and does not wait again
	}
}
