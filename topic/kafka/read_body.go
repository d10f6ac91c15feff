package kafka

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// stallTime is how long a request may come, or an answer be received, more
	// slowly than stallBytes in it while others wait for memory.
	stallTime  = time.Second
	stallBytes = 64 << 10
)

// errStalled says that a request came too slowly for the memory that it held.
var errStalled = errors.New("others wait for memory, and the rest of the request comes too slowly")

// readBody reads size bytes. It takes memory for all of them when the first have
// come, so that who announces much and sends nothing costs little.
func readBody(from io.Reader, size int) ([]byte, error) {
	body := make([]byte, min(size, firstStep))
	if _, err := io.ReadFull(from, body); err != nil || len(body) == size {
		return body, err
	}
	longer := make([]byte, size)
	copy(longer, body)
	_, err := io.ReadFull(from, longer[len(body):])
	return longer, err
}

// bodyReader reads the body of a request whose memory is reserved. Memory is
// reserved for all of it at once, so that no two requests can wait for each
// other; so one that does not come must not keep it from others.
type bodyReader struct {
	connection *connection
	exchange   *exchange
	// deadline is when all of it must be there.
	deadline time.Time
	// since is when the present stallTime began, and got what has come in it.
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

// wanted tells whether others wait for memory that the request holds.
func (r *bodyReader) wanted() bool {
	s := r.connection.server
	return s.requests.contended() || r.exchange.large > 0 && s.large.contended()
}
