package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// targetOptions says how a target behaves. A share of ids is from 0 (none) to 1
// (all); which ones it falls on follows from Seed and the id alone.
type targetOptions struct {
	// Rate is how many requests are let through in each window; 0 is no limit.
	// Windows are those of the wall clock: with Window 1 s, its full seconds.
	Rate int
	// Window is the length of a window. Default 1 s.
	Window time.Duration
	// Seed chooses the ids that are slow, fail or are rejected.
	Seed uint64
	// SlowShare of the ids take SlowFor; the others take 1 to 3 ms.
	SlowShare float64
	// SlowFor is how long a slow answer takes. Default 150 ms.
	SlowFor time.Duration
	// FlakyShare of the ids are answered 500 the first time they are let through.
	FlakyShare float64
	// RejectShare of the ids, others than the flaky ones, are answered 422.
	RejectShare float64
	// RememberIDs is how many ids are surely remembered, so that each counts once
	// and fails once; up to twice as many are. Default 250,000 (about 20 MB).
	RememberIDs int
}

// demoTargetOptions are those of the demo: a target with every fault, each rare.
func demoTargetOptions(rate int) targetOptions {
	return targetOptions{Rate: rate, Seed: 1, SlowShare: 0.02, FlakyShare: 0.01, RejectShare: 0.001}
}

const (
	maxTargetBodyBytes = 1 << 20
	headerWebhookID    = "webhook-id"
)

// target is a small external API on the loopback interface: it is rate limited,
// sometimes slow, and sometimes fails, all in a way that can be foretold from
// the webhook-id. It does each id once, however often it is asked, and answers
// with the payload. It is an http.Handler, and a server of itself.
type target struct {
	options targetOptions
	limit   targetWindow
	ids     targetIDs
	counts  targetCounters

	server *http.Server
	served chan error // what Serve returned; nil before Start
}

// targetStats are what a target counted. Requests is the sum of Accepted,
// Throttled, Failed, Rejected, Malformed and Abandoned, when nothing is in
// flight.
type targetStats struct {
	Requests int64
	// Accepted counts the answers 200, repeated ones too.
	Accepted int64
	// Throttled, Failed and Rejected count the answers 429, 500 and 422.
	Throttled, Failed, Rejected int64
	// Malformed counts the requests that are no webhook at all.
	Malformed int64
	// Abandoned counts the requests whose client left before the answer.
	Abandoned int64
	// Slow counts the requests that took SlowFor, whatever the answer.
	Slow int64
	// Distinct counts the ids among Accepted: those that were done.
	Distinct int64
}

type targetCounters struct {
	requests, accepted, throttled, failed, rejected, malformed, abandoned, slow, distinct atomic.Int64
}

// newTarget returns a target that is not started.
func newTarget(options targetOptions) *target {
	if options.Window <= 0 {
		options.Window = time.Second
	}
	if options.SlowFor <= 0 {
		options.SlowFor = 150 * time.Millisecond
	}
	if options.RememberIDs <= 0 {
		options.RememberIDs = 250_000
	}
	return &target{
		options: options,
		limit:   targetWindow{rate: options.Rate, length: options.Window},
		ids:     targetIDs{max: options.RememberIDs, recent: map[uint64]targetMark{}},
	}
}

// Start serves the target on a free loopback port and returns its URL.
func (t *target) Start() (url string, err error) {
	if t.served != nil {
		return "", errors.New("the local target was started before")
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start the local target: %w", err)
	}
	t.server = &http.Server{
		Handler:           t,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		// Live bars own the terminal; what goes wrong is in the client's errors.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	t.served = make(chan error, 1)
	go func() { t.served <- t.server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/", nil
}

// Stop answers what is in flight and ends the server; when ctx ends first, it
// breaks off. It does nothing if the target was not started.
func (t *target) Stop(ctx context.Context) error {
	if t.served == nil {
		return nil
	}
	err := t.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("the local target did not stop in time: %w", err), t.server.Close())
	}
	served := <-t.served
	t.served <- served // so that Stop may be called again
	if !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("the local target failed: %w", served))
	}
	return err
}

// Stats returns what was counted so far.
func (t *target) Stats() targetStats {
	c := &t.counts
	return targetStats{
		Requests: c.requests.Load(), Accepted: c.accepted.Load(), Throttled: c.throttled.Load(),
		Failed: c.failed.Load(), Rejected: c.rejected.Load(), Malformed: c.malformed.Load(),
		Abandoned: c.abandoned.Load(), Slow: c.slow.Load(), Distinct: c.distinct.Load(),
	}
}

// ServeHTTP answers one webhook.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.counts.requests.Add(1)
	id, body, refused := readWebhook(w, r)
	if refused != 0 {
		t.counts.malformed.Add(1)
		http.Error(w, "want a POST with a "+headerWebhookID+" and at most 1 MiB", refused)
		return
	}
	if wait := t.limit.admit(time.Now()); wait > 0 {
		t.counts.throttled.Add(1)
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		http.Error(w, fmt.Sprintf("at most %d requests in %s", t.options.Rate, t.options.Window), http.StatusTooManyRequests)
		return
	}
	t.work(w, r, fateOf(&t.options, id), body)
}

// work does what is foretold for an id that was let through.
func (t *target) work(w http.ResponseWriter, r *http.Request, fate targetFate, body []byte) {
	if fate.slow {
		t.counts.slow.Add(1)
	}
	timer := time.NewTimer(fate.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		t.counts.abandoned.Add(1)
		return
	}
	switch {
	case fate.rejected:
		t.counts.rejected.Add(1)
		http.Error(w, "this payload is rejected", http.StatusUnprocessableEntity)
	case fate.flaky && t.ids.mark(fate.id, markFailed):
		t.counts.failed.Add(1)
		http.Error(w, "a temporary fault", http.StatusInternalServerError)
	default:
		if t.ids.mark(fate.id, markDone) {
			t.counts.distinct.Add(1)
		}
		t.counts.accepted.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the client may be gone; it will ask again
	}
}

// readWebhook returns a request's id and body, or the status that refuses it.
func readWebhook(w http.ResponseWriter, r *http.Request) (id string, body []byte, refused int) {
	id = r.Header.Get(headerWebhookID)
	switch {
	case r.Method != http.MethodPost:
		return "", nil, http.StatusMethodNotAllowed
	case id == "":
		return "", nil, http.StatusBadRequest
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTargetBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return "", nil, http.StatusRequestEntityTooLarge
	case err != nil:
		return "", nil, http.StatusBadRequest
	}
	return id, body, 0
}

// targetFate is what is foretold for an id.
type targetFate struct {
	id                    uint64 // a hash: two of a million ids share one with p < 1e-7
	takes                 time.Duration
	slow, flaky, rejected bool
}

// fateOf derives a fate from the seed and the id alone.
func fateOf(options *targetOptions, id string) targetFate {
	hash := uint64(14695981039346656037) ^ mix(options.Seed)
	for i := range len(id) { // FNV-1a
		hash = (hash ^ uint64(id[i])) * 1099511628211
	}
	hash = mix(hash)
	fate := targetFate{id: hash, slow: unit(mix(hash^1)) < options.SlowShare}
	fate.takes = time.Millisecond + time.Duration(unit(mix(hash^2))*float64(2*time.Millisecond))
	if fate.slow {
		fate.takes = options.SlowFor
	}
	luck := unit(mix(hash ^ 3))
	fate.rejected = luck < options.RejectShare
	fate.flaky = !fate.rejected && luck < options.RejectShare+options.FlakyShare
	return fate
}

// mix is the finalizer of SplitMix64: every bit of x changes half of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps a hash to [0, 1).
func unit(hash uint64) float64 { return float64(hash>>11) / (1 << 53) }

// targetWindow is a fixed-window rate limit.
type targetWindow struct {
	rate   int
	length time.Duration

	mu    sync.Mutex
	ends  time.Time
	taken int
}

// admit takes one place of the present window and returns 0; if there is none
// left, it returns how long the window still lasts.
func (l *targetWindow) admit(now time.Time) (wait time.Duration) {
	if l.rate <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Requests that waited for the lock may be a little late; a window that has
	// begun is not left again.
	if !now.Before(l.ends) {
		l.ends, l.taken = now.Truncate(l.length).Add(l.length), 0
	}
	if l.taken == l.rate {
		return l.ends.Sub(now)
	}
	l.taken++
	return 0
}

// targetMark says what happened to an id.
type targetMark uint8

const (
	markFailed targetMark = 1 << iota
	markDone
)

// targetIDs remembers marks of ids in two generations: when the recent one is
// full, the older one is forgotten.
type targetIDs struct {
	max int

	mu            sync.Mutex
	recent, older map[uint64]targetMark
}

// mark sets a mark and tells whether it is new.
func (s *targetIDs) mark(id uint64, mark targetMark) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks, known := s.recent[id]
	if !known {
		marks = s.older[id]
		if len(s.recent) >= s.max {
			s.older, s.recent = s.recent, map[uint64]targetMark{}
		}
	}
	s.recent[id] = marks | mark
	return marks&mark == 0
}
