package kafka

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// stallTime is the period in which at least stallBytes of a request must arrive, or of an
	// answer be received, while others wait for memory.
	stallTime  = time.Second
	stallBytes = 64 << 10
)

// errStalled means that a request arrived too slowly for the memory that it held.
var errStalled = errors.New("others wait for memory, and the rest of the request comes too slowly")

// step is memory for a request, or for the beginning of a longer one.
type step [firstStep]byte

// steps has those that are used again: at most as many as were in use at once.
var steps = sync.Pool{New: func() any { return new(step) }}

// readBody reads size bytes. It allocates most of the memory when the first bytes have arrived, so
// that a client that announces many bytes and sends none costs little. A body that takes half of a step or
// more is in the step that is returned; the caller may give that back to steps.
func readBody(from io.Reader, size int) (body []byte, in *step, err error) {
	if size < firstStep/2 {
		body = make([]byte, size)
		_, err = io.ReadFull(from, body)
		return body, nil, err
	}
	in = steps.Get().(*step)
	if size <= firstStep {
		body = in[:size:size]
		_, err = io.ReadFull(from, body)
		return body, in, err
	}
	defer steps.Put(in)
	if _, err := io.ReadFull(from, in[:]); err != nil {
		return nil, nil, err
	}
	body = make([]byte, size)
	_, err = io.ReadFull(from, body[copy(body, in[:]):])
	return body, nil, err
}

// bodyReader reads the body of a request whose memory is reserved. The memory is reserved as a
// whole, so that no two requests can wait for each other; so a stalled request must not keep it
// from others.
type bodyReader struct {
	connection *connection
	exchange   *exchange
	// deadline is when the whole body must have arrived.
	deadline time.Time
	// since is the beginning of the present stallTime; got is the number of bytes that have arrived
	// in it.
	since time.Time
	got   int
}

func (c *connection) newBodyReader(x *exchange) *bodyReader {
	now := time.Now()
	return &bodyReader{connection: c, exchange: x, deadline: now.Add(c.server.options.ReadTimeout), since: now}
}

func (r *bodyReader) Read(p []byte) (int, error) {
	for {
		next := r.since.Add(stallTime)
		if r.deadline.Before(next) {
			next = r.deadline
		}
		if err := r.connection.setReadDeadline(time.Until(next)); err != nil {
			return 0, err
		}
		n, err := r.connection.input.Read(p)
		r.got += n
		now := time.Now()
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || r.connection.stopping.Load() || !now.Before(r.deadline)) {
			return n, err
		}
		if now.Sub(r.since) >= stallTime {
			if r.got < stallBytes && r.wanted() {
				return n, fmt.Errorf("%w: %d bytes in %v", errStalled, r.got, now.Sub(r.since).Round(time.Millisecond))
			}
			r.since, r.got = now, 0
		}
		if n > 0 {
			return n, nil
		}
	}
}

// wanted reports whether others wait for memory that the request holds.
func (r *bodyReader) wanted() bool {
	s := r.connection.server
	return s.requests.Contended() || r.exchange.large > 0 && s.large.Contended()
}
