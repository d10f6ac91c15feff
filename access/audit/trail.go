package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/lifecycle"
)

// Options configure a Trail.
type Options struct {
	// File is the path of the file; "": none. MaxBytes bounds it, and Keep is how many more files hold what it had
	// before.
	File     string
	MaxBytes int64
	Keep     int
	// Node names the server among others.
	Node string
	// Settings is the SHA-256 of the settings.
	Settings string
	// Logger gets failures to write. Default slog.Default().
	Logger *slog.Logger
}

// Trail takes entries. It is a lifecycle.Service, and safe for concurrent use. A nil Trail takes nothing.
type Trail struct {
	*lifecycle.Group
	options Options
	run     string
	number  atomic.Int64
	repeats repeats
	file    *file // nil: none
	sinks   []*sink

	mu     sync.Mutex
	latest []Entry // the oldest first
}

// Kept is how many of the latest entries a trail has in memory.
const Kept = 200

// New returns a trail. Entries wait until it is started.
func New(options Options) *Trail {
	run := make([]byte, 8)
	_, _ = rand.Read(run) // it never fails
	options.Logger = cmp.Or(options.Logger, slog.Default())
	t := &Trail{Group: lifecycle.NewGroup(context.Background()), options: options, run: hex.EncodeToString(run), repeats: repeats{seen: map[sender]*repeated{}}}
	if options.File != "" {
		t.file = &file{path: options.File, maxBytes: options.MaxBytes, keep: options.Keep}
		t.addSink(options.File, t.file.write)
	}
	return t
}

// PublishTo adds a publisher, before the trail is started. After an error it gets the same entries again.
func (t *Trail) PublishTo(name string, publish func(ctx context.Context, entries []Entry) error) {
	t.addSink(name, publish)
}

func (t *Trail) addSink(name string, write func(context.Context, []Entry) error) {
	t.sinks = append(t.sinks, &sink{
		name: name, logger: t.options.Logger, write: write, queue: make(chan Entry, QueueSize),
		counted: func(lost int64) Entry {
			return t.complete(Entry{Edge: Server, Operation: "lost", Outcome: Failed, Count: int(lost)})
		},
	})
}

// Name implements lifecycle.Service.
func (t *Trail) Name() string { return "audit trail" }

// Start opens the file, and records the start of the server. An error names the file.
func (t *Trail) Start(context.Context) error {
	if t.file != nil {
		if err := t.file.reopen(); err != nil {
			return fmt.Errorf("audit.file: %w", err)
		}
	}
	t.add(Entry{Edge: Server, Operation: "start", Outcome: Allowed, Settings: t.options.Settings})
	for _, s := range t.sinks {
		t.Go("write to "+s.name, s.run)
	}
	t.Go("count repeated refusals", func(ctx context.Context) error {
		for lifecycle.Sleep(ctx, nil, Window) {
			t.addRepeated()
		}
		return nil
	})
	return nil
}

// Stop records the stop of the server, and writes what waits.
func (t *Trail) Stop(ctx context.Context) error {
	t.addRepeated()
	t.add(Entry{Edge: Server, Operation: "stop", Outcome: Allowed})
	err := t.Group.Stop(ctx)
	if err == nil && t.file != nil {
		err = t.file.close()
	}
	return err
}

// Record takes the entry of a request that needs a right, if it belongs in the trail: it was refused, or the right is
// one that changes something. It never waits.
func (t *Trail) Record(right access.Right, e Entry) {
	switch {
	case t == nil:
	case e.Outcome == Refused || e.Outcome == Unauthenticated:
		e.clean()
		if t.repeats.first(e) {
			t.add(e)
		}
	case right.Changes():
		e.clean()
		t.add(e)
	}
}

func (t *Trail) addRepeated() {
	for _, e := range t.repeats.take() {
		t.add(e)
	}
}

// Latest returns up to Kept entries since the start of the server, the latest first.
func (t *Trail) Latest() []Entry {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	latest := slices.Clone(t.latest)
	slices.Reverse(latest)
	return latest
}

func (t *Trail) add(e Entry) {
	e = t.complete(e)
	t.mu.Lock()
	t.latest = append(t.latest[max(0, len(t.latest)-Kept+1):], e)
	t.mu.Unlock()
	for _, s := range t.sinks {
		s.add(e)
	}
}

// complete sets what an entry has of the server.
func (t *Trail) complete(e Entry) Entry {
	e.ID, e.Time, e.Node = fmt.Sprintf("%s-%d", t.run, t.number.Add(1)), time.Now().UTC(), t.options.Node
	return e
}
