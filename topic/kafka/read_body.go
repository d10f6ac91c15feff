package kafka

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sluice-project/sluice/topic"
)

const (
	// stallTime is the period in which at least stallBytes of a request must arrive, or of an
	// answer be received, while others wait for memory.
	stallTime  = time.Second
	stallBytes = 64 << 10
)

// errStalled means that a request arrived too slowly for the memory that it held.
var errStalled = errors.New("others wait for memory, and the rest of the request comes too slowly")

// readBody reads size bytes into a block. A large one is taken when some bytes have arrived, so
// that a client that announces many bytes and sends none costs little.
func readBody(from io.Reader, size int) (*topic.Block, error) {
	var begun []byte
	if size > largeRequest {
		first := topic.TakeBlock(firstBytes)
		defer first.Free()
		if _, err := io.ReadFull(from, first.Bytes); err != nil {
			return nil, err
		}
		begun = first.Bytes
	}
	body := topic.TakeBlock(size)
	_, err := io.ReadFull(from, body.Bytes[copy(body.Bytes, begun):])
	return body, err
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
