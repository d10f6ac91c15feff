package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// writeStep is how much a client must receive within each write timeout.
	writeStep = 1 << 20
	// keptBuffer bounds the buffers for answers that are reused.
	keptBuffer = 1 << 20
)

// errUnreceived means that a client received too slowly for the memory that its answer held.
var errUnreceived = errors.New("others wait for memory, and the client receives its answer too slowly")

// send waits for answers and sends them, in the order of their requests.
func (c *connection) send(context.Context) error {
	defer c.end()
	defer c.cancel()
	for {
		select {
		case x, more := <-c.started:
			if !more {
				return nil
			}
			if err := c.sendOne(x); err != nil {
				c.logEnd("kafka connection ends", err)
				return nil
			}
		case <-c.ctx.Done():
			return nil
		}
	}
}

// sendOne waits for an answer and sends it.
func (c *connection) sendOne(x *exchange) error {
	defer x.memory.release()
	defer c.endTurn(x)
	if !waitsForOthers(x.key) {
		if err := x.memory.reserve(x.elements); err != nil {
			return err
		}
	}
	var response kmsg.Response
	if err := c.recovered(x, func() { response = x.answer(c.ctx) }); err != nil {
		return err
	}
	c.recordAnswer(x, response)
	if err := c.ctx.Err(); err != nil { // the connection has ended
		return err
	}
	x.answer = nil
	if x.spent {
		x.block.Free()
	}
	x.block = nil
	c.endTurn(x)
	c.release(x)
	c.server.metrics.answered(x, response)
	if response != nil {
		if err := c.write(x, response); err != nil {
			return err
		}
		if r, ok := response.(*fetchResponse); ok {
			r.release()
		}
		if x.key != keyAPIVersions {
			c.served.Store(true)
		}
	}
	c.active.Store(time.Now().UnixNano())
	<-c.slots
	return nil
}

// buffers are buffers for answers.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// write sends an answer.
func (c *connection) write(x *exchange, response kmsg.Response) error {
	buffer := buffers.Get().(*[]byte)
	var parts net.Buffers
	err := c.recovered(x, func() {
		switch r := response.(type) {
		case framed:
			parts, *buffer = r.frame(*buffer, x.correlation)
			return
		case *bareResponse:
			parts = r.frame()
			return
		}
		*buffer = appendAnswer(slices.Grow((*buffer)[:0], x.room()), x.correlation, response)
		x.memory.built(len(*buffer))
		parts = net.Buffers{*buffer}
	})
	if err == nil {
		err = c.writeAll(parts)
	}
	if cap(*buffer) <= keptBuffer {
		buffers.Put(buffer)
	}
	return err
}

// writeAll writes all parts, in steps that must each be received in time.
func (c *connection) writeAll(parts net.Buffers) error {
	for len(parts) > 0 {
		var step net.Buffers
		step, parts = split(parts, writeStep)
		if err := c.writeOne(step); err != nil {
			return err
		}
	}
	return nil
}

// writeOne writes one step.
func (c *connection) writeOne(step net.Buffers) (err error) {
	c.writeBy.Store(time.Now().Add(c.server.options.WriteTimeout).UnixNano())
	if c.secure != nil {
		_, err = step.WriteTo(c.secure) // which pushes records of at most 16 KiB
	} else {
		_, err = c.push(step)
	}
	return err
}

// push writes bytes of one step, or of a record of TLS, until the step's deadline. While others wait for
// memory of answers, a client that receives too slowly is disconnected.
func (c *connection) push(step net.Buffers) (sent int64, err error) {
	deadline := time.Unix(0, c.writeBy.Load())
	for {
		next := time.Now().Add(stallTime)
		if deadline.Before(next) {
			next = deadline
		}
		if err := c.conn.SetWriteDeadline(next); err != nil {
			return sent, err
		}
		n, err := step.WriteTo(c.conn) // removes the written bytes from step
		sent += n
		c.server.metrics.sent.Add(float64(n))
		switch {
		case err == nil:
			return sent, nil
		case !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline):
			return sent, err
		case n < stallBytes && c.server.answers.Contended():
			return sent, fmt.Errorf("%w: %d bytes in %v", errUnreceived, n, stallTime)
		}
	}
}

// split returns the first n bytes of parts, and the rest.
func split(parts net.Buffers, n int) (first, rest net.Buffers) {
	for i, part := range parts {
		if len(part) > n {
			first = append(first, parts[:i]...)
			first = append(first, part[:n])
			parts[i] = part[n:]
			return first, parts[i:]
		}
		n -= len(part)
	}
	return parts, nil
}

// below is the connection below TLS. The deadlines of writes must be here: TLS does not go on after
// a write that had too little time.
type below struct {
	net.Conn
	c *connection
}

// Write implements net.Conn.
func (b below) Write(p []byte) (int, error) {
	n, err := b.c.push(net.Buffers{p})
	return int(n), err
}
