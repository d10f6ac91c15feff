package jwks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// Refresh is how often a set is read.
	Refresh = 5 * time.Minute
	// Pause is the least time between two reads: after a failure, and for a key that is unknown.
	Pause = 10 * time.Second
	// Survive is how long the last set holds while no other can be read.
	Survive = 24 * time.Hour

	fetchTime = 10 * time.Second // bounds one read
)

// Keys has the newest set of a source. It is safe for concurrent use.
type Keys struct {
	source  string
	logger  *slog.Logger
	client  *http.Client
	set     atomic.Pointer[read]
	missing chan struct{} // has room for one: a key was unknown
}

// read is a set, with the time when it was read.
type read struct {
	keys Set
	at   time.Time
}

// New returns the keys of a source: a URL that begins with http, or the path of a file. It has none before Follow.
func New(source string, logger *slog.Logger) *Keys {
	return &Keys{source: source, logger: logger, missing: make(chan struct{}, 1), client: &http.Client{
		Timeout: fetchTime,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects: want the URL of the keys themselves")
		},
	}}
}

// Find returns the key of a kid that verifies an algorithm; nil if it is unknown, or was not confirmed for Survive. Then
// the set is read again soon.
func (k *Keys) Find(kid, algorithm string) any {
	if now := k.set.Load(); now != nil && time.Since(now.at) < Survive {
		if key := now.keys[ID{kid, algorithm}]; key != nil {
			return key
		}
	}
	select {
	case k.missing <- struct{}{}:
	default:
	}
	return nil
}

// Follow reads the set at once, and again until the context ends.
func (k *Keys) Follow(ctx context.Context) error {
	defer k.client.CloseIdleConnections()
	failed := false
	for ctx.Err() == nil {
		next := Refresh
		err := k.read(ctx)
		switch {
		case err != nil:
			next = Pause
			if !failed && ctx.Err() == nil {
				k.logger.Error("the keys of the identity provider cannot be read: those that were read last hold for a day", "source", k.source, "error", err)
			}
		case failed:
			k.logger.Info("the keys of the identity provider can be read again", "source", k.source)
		}
		failed = err != nil
		k.wait(ctx, next)
	}
	return nil
}

// wait returns after a time, or earlier for a key that is unknown, but not before Pause.
func (k *Keys) wait(ctx context.Context, next time.Duration) {
	pause := time.NewTimer(Pause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return
	}
	rest := time.NewTimer(next - Pause)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-k.missing:
	case <-ctx.Done():
	}
}

func (k *Keys) read(ctx context.Context) error {
	text, err := k.load(ctx)
	if err != nil {
		return err
	}
	set, err := Parse(text)
	if err == nil {
		k.set.Store(&read{set, time.Now()})
	}
	return err
}

// load returns the text of the set, at most a byte more than it may have.
func (k *Keys) load(ctx context.Context) ([]byte, error) {
	if !strings.HasPrefix(k.source, "http") {
		file, err := os.Open(k.source)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		return io.ReadAll(io.LimitReader(file, MaxBytes+1))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.source, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s: want 200", response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, MaxBytes+1))
}
