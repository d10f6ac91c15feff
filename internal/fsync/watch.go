package fsync

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Slow is how long an fsync takes when the disk is slow: a good disk takes less than a
	// hundredth of it.
	Slow = time.Second
	// remembered is how long the disk counts as slow after a slow fsync.
	remembered = time.Minute
	// logEvery bounds the lines in the log: one in that time.
	logEvery = time.Minute
)

// Watch watches the fsyncs of the stores of a process. It is a prometheus.Collector.
type Watch struct {
	log   *slog.Logger
	took  *prometheus.HistogramVec
	slow  *prometheus.CounterVec
	mu    sync.Mutex
	hangs map[*operation]bool // the slow ones that go on
	last  *operation          // the slow one that ended last; nil: none
	said  time.Time           // when the log was last told
}

// NewWatch returns a watch that logs to a logger.
func NewWatch(log *slog.Logger) *Watch {
	return &Watch{
		log: log, hangs: map[*operation]bool{},
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "disk_fsync_duration_ms", Help: "Time of fsyncs of files and folders, by store.",
			Buckets: prometheus.ExponentialBuckets(0.125, 2, 17), // to 8 s
		}, []string{"store"}),
		slow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "disk_slow_fsyncs_total", Help: "Fsyncs that have taken a second or more, counted when they have, by store.",
		}, []string{"store"}),
	}
}

// Describe implements prometheus.Collector.
func (w *Watch) Describe(to chan<- *prometheus.Desc) {
	w.took.Describe(to)
	w.slow.Describe(to)
}

// Collect implements prometheus.Collector.
func (w *Watch) Collect(to chan<- prometheus.Metric) {
	w.took.Collect(to)
	w.slow.Collect(to)
}

// Check returns why the disk is slow: which fsync goes on for too long, or has within the last minute. Nil: it is not.
func (w *Watch) Check(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest *operation
	for o := range w.hangs {
		if longest == nil || o.began.Before(longest.began) {
			longest = o
		}
	}
	if longest != nil {
		return fmt.Errorf("the disk is slow: an fsync of the store %s has gone on for %v (%s)", longest.store.name, time.Since(longest.began).Truncate(time.Second), longest.path)
	}
	if w.last == nil || time.Since(w.last.ended) >= remembered {
		return nil
	}
	return fmt.Errorf("the disk is slow: an fsync of the store %s took %v, %v ago (%s)", w.last.store.name, w.last.ended.Sub(w.last.began).Truncate(100*time.Millisecond),
		time.Since(w.last.ended).Truncate(time.Second), w.last.path)
}

// store is the part of a watch for one store.
type store struct {
	*Watch
	name string
	took prometheus.Observer
	slow prometheus.Counter
}

// operation is an fsync.
type operation struct {
	store        *store
	path         string
	began, ended time.Time // ended is zero while it goes on
}

// timed runs an fsync.
func (s *store) timed(path string, sync func() error) error {
	o := &operation{store: s, path: path, began: time.Now()}
	isSlow := time.AfterFunc(Slow, o.isSlow)
	err := sync()
	ended := time.Now()
	if !isSlow.Stop() {
		o.end(ended)
	}
	s.took.Observe(float64(ended.Sub(o.began)) / float64(time.Millisecond))
	return err
}

// isSlow is called once an fsync has taken too long, perhaps when it has just ended.
func (o *operation) isSlow() {
	w := o.store.Watch
	o.store.slow.Inc()
	w.mu.Lock()
	if o.ended.IsZero() {
		w.hangs[o] = true
	}
	now := time.Now()
	say := w.said.IsZero() || now.Sub(w.said) >= logEvery
	if say {
		w.said = now
	}
	w.mu.Unlock()
	if say {
		w.log.Warn("the disk is slow: an fsync has taken too long, and what it is for is acknowledged when it ends", "store", o.store.name, "file", o.path, "bound", Slow)
	}
}

// end ends an fsync that was slow.
func (o *operation) end(at time.Time) {
	w := o.store.Watch
	w.mu.Lock()
	defer w.mu.Unlock()
	o.ended = at
	delete(w.hangs, o)
	w.last = o
}
