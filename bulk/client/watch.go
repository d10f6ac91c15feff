package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/jsonclient"
	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// silence is how long a watch may be silent before its connection counts as broken: three
	// heartbeats.
	silence = 45 * time.Second
	// maxEvent is the maximum size of one event.
	maxEvent = 64 << 20
)

// errSilent is the error of a connection without any data, even heartbeats.
var errSilent = fmt.Errorf("nothing came for %v", silence)

// Watch calls f with the action now and on every change, and returns nil after the final one.
// It reconnects after a broken connection, as many times in a row as WithAttempts sets; f may
// then see the same state twice. An error of f ends the watch and is returned.
func (c *Client) Watch(ctx context.Context, id string, f func(wire.Action) error) error {
	w := &watch{f: f}
	for failed := 0; ; {
		w.seen, w.ended = false, false
		err := c.watchOnce(ctx, id, w)
		switch {
		case w.stop != nil:
			return w.stop
		case w.last.Final() && (w.ended || w.last.FinishedAt != nil):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if w.seen {
			failed = 0
		}
		after, ok := jsonclient.Transient(err)
		if !ok {
			return err
		}
		failed++
		if failed >= c.api.Retry.Attempts {
			return fmt.Errorf("gave up after %d connections: %w", failed, err)
		}
		lifecycle.Sleep(ctx, nil, c.api.Retry.Delay(failed, after))
	}
}

// watch is the state of a watch over several connections.
type watch struct {
	f    func(wire.Action) error
	last wire.Action
	// seen reports whether this connection brought an event, ended whether the server ended
	// it.
	seen, ended bool
	// stop is the error of f.
	stop error
}

// watchOnce reads one connection until it ends, and returns the error.
func (c *Client) watchOnce(ctx context.Context, id string, w *watch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := c.api.Request(ctx, call{Method: "GET", Path: at("actions", id, "watch")}, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "text/event-stream")
	alarm := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer alarm.Stop()
	response, err := c.api.Open(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	var data []byte
	for lines.Scan() {
		alarm.Reset(silence)
		line := lines.Bytes()
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, text...), '\n')
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		if err := w.event(data); err != nil {
			return err
		}
		data = data[:0]
	}
	w.ended = lines.Err() == nil
	return &jsonclient.ConnectionError{Err: errors.Join(context.Cause(ctx), lines.Err(), io.ErrUnexpectedEOF)}
}

func (w *watch) event(data []byte) error {
	var action wire.Action
	if err := json.Unmarshal(data, &action); err != nil {
		return fmt.Errorf("an event is not an action: %w", err)
	}
	w.last, w.seen = action, true
	w.stop = w.f(action)
	return w.stop
}
