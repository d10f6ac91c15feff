package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/ops"
)

// demoTarget is what the jobs of the demo call.
type demoTarget struct {
	URL  string
	Stop func(context.Context) error
	// Done counts the jobs that the target executed, each once.
	Done func() int64
}

// targetNetworks are where the target is.
var targetNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// startDemoTarget starts the simulated target on a free loopback port.
func startDemoTarget(requestsPerSecond int) (*demoTarget, error) {
	t := newTarget(demoTargetOptions(requestsPerSecond))
	// The terminal belongs to the bars; the client reports errors.
	server := ops.NewFront(ops.Options{Addr: "127.0.0.1:0", Name: "target", Logger: slog.New(slog.DiscardHandler)}, t)
	if err := server.Start(context.Background()); err != nil {
		return nil, err
	}
	return &demoTarget{URL: "http://" + server.Addr().String() + "/", Stop: server.Stop, Done: t.Distinct}, nil
}

// targetOptions describe the behaviour of a target. A share is from 0 (no id) to 1 (all);
// Seed and the id alone decide which ids it has.
type targetOptions struct {
	// Rate is how many requests each full second of the wall clock admits; 0 is no limit.
	Rate int
	Seed uint64
	// SlowShare of the ids take slowTime; the others take 1 to 3 ms.
	SlowShare float64
	// FlakyShare of the ids are answered 500 the first time they are admitted.
	FlakyShare float64
	// RejectShare of the ids, others than the flaky ones, are answered 422.
	RejectShare float64
}

// demoTargetOptions are those of the demo: a target with every fault, each rare.
func demoTargetOptions(rate int) targetOptions {
	return targetOptions{Rate: rate, Seed: 1, SlowShare: 0.02, FlakyShare: 0.01, RejectShare: 0.001}
}

const (
	slowTime           = 150 * time.Millisecond
	maxTargetBodyBytes = 1 << 20
	// mostTargetIDs bounds the remembered ids (about 10 MB): when there are more, all are forgotten.
	mostTargetIDs   = 250_000
	headerWebhookID = "webhook-id"
)

// targetMark says what happened to an id.
type targetMark uint8

const (
	markFailed targetMark = 1 << iota
	markDone
)

// target simulates an external API. It is rate limited, sometimes slow, and sometimes
// fails, all decided by the webhook-id. It executes each id once, however often it is
// called, and answers with the payload.
type target struct {
	options targetOptions

	mu sync.Mutex
	// ends is the end of the present second, taken the number of requests it admitted.
	ends     time.Time
	taken    int
	marks    map[uint64]targetMark
	distinct int64
}

func newTarget(options targetOptions) *target {
	return &target{options: options, marks: map[uint64]targetMark{}}
}

// Distinct counts the ids that were executed.
func (t *target) Distinct() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.distinct
}

// ServeHTTP answers one webhook.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, body, refused := readWebhook(w, r)
	if refused != 0 {
		http.Error(w, "want a POST with a "+headerWebhookID+" and at most 1 MiB", refused)
		return
	}
	if wait := t.admit(time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		http.Error(w, fmt.Sprintf("at most %d requests in 1s", t.options.Rate), http.StatusTooManyRequests)
		return
	}
	fate := fateOf(&t.options, id)
	if rest(r.Context(), fate.takes) != nil {
		return // the client left
	}
	switch {
	case fate.rejected:
		http.Error(w, "this payload is rejected", http.StatusUnprocessableEntity)
	case fate.flaky && t.mark(fate.id, markFailed):
		http.Error(w, "a temporary fault", http.StatusInternalServerError)
	default:
		t.mark(fate.id, markDone)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the client may be gone; it will retry
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

// admit counts a request in the present second and returns 0; if the second is full,
// it returns how long it still lasts.
func (t *target) admit(now time.Time) (wait time.Duration) {
	if t.options.Rate <= 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A request that waited for the lock may be older than the second; a second that has
	// begun stays.
	if !now.Before(t.ends) {
		t.ends, t.taken = now.Truncate(time.Second).Add(time.Second), 0
	}
	if t.taken == t.options.Rate {
		return t.ends.Sub(now)
	}
	t.taken++
	return 0
}

// mark sets a mark of an id and reports whether it is new.
func (t *target) mark(id uint64, mark targetMark) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks, known := t.marks[id]
	if !known && len(t.marks) == mostTargetIDs {
		clear(t.marks)
	}
	t.marks[id] = marks | mark
	if mark == markDone && marks&markDone == 0 {
		t.distinct++
	}
	return marks&mark == 0
}

// targetFate is the behaviour that an id gets.
type targetFate struct {
	id              uint64 // a hash: two of a million ids share one with p < 1e-7
	takes           time.Duration
	flaky, rejected bool
}

// fateOf derives a fate from the seed and the id alone.
func fateOf(options *targetOptions, id string) targetFate {
	hash := uint64(14695981039346656037) ^ mix(options.Seed)
	for i := range len(id) { // FNV-1a
		hash = (hash ^ uint64(id[i])) * 1099511628211
	}
	hash = mix(hash)
	fate := targetFate{id: hash, takes: time.Millisecond + time.Duration(unit(mix(hash^2))*float64(2*time.Millisecond))}
	if unit(mix(hash^1)) < options.SlowShare {
		fate.takes = slowTime
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
