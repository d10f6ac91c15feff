package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// uploadMemory bounds the chunks in memory. A chunk takes memory as it arrives, so a sender
// that stalls holds no more than what it sent. When the memory is used up, the slowest sender
// of the tenant that holds the most gives way: neither slow senders nor other tenants keep a
// tenant from uploading.
type uploadMemory struct {
	mu      sync.Mutex
	left    int
	held    map[string]int // by tenant
	reading map[*arrival]struct{}
	freed   chan struct{} // closed, and replaced, when memory becomes free
}

// arrival is a chunk that arrives, in pieces.
type arrival struct {
	memory *uploadMemory
	tenant string
	began  time.Time
	// interrupt ends a read of the body that waits for the sender.
	interrupt func()

	// These are guarded by memory.mu.
	held     int
	givesWay bool

	pieces [][]byte
	size   int // the bytes in pieces
}

// errGaveWay is the error of a chunk that gave way, or found no memory in time.
var errGaveWay = errors.New("the memory for uploads is used up, and this chunk was slow or late")

func newUploadMemory(size int) *uploadMemory {
	return &uploadMemory{left: size, held: map[string]int{}, reading: map[*arrival]struct{}{}, freed: make(chan struct{})}
}

// begin begins a chunk of a tenant, which holds memory until free.
func (m *uploadMemory) begin(tenant string, control *http.ResponseController) *arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &arrival{memory: m, tenant: tenant, began: time.Now()}
	c.interrupt = func() { _ = control.SetReadDeadline(time.Now()) } // if it cannot, the chunk gives way with its next piece
	m.reading[c] = struct{}{}
	return c
}

// free returns the memory of the chunk.
func (c *arrival) free() {
	m := c.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reading, c)
	m.left += c.held
	if m.held[c.tenant] -= c.held; m.held[c.tenant] == 0 {
		delete(m.held, c.tenant)
	}
	c.held, c.pieces = 0, nil
	close(m.freed)
	m.freed = make(chan struct{})
}

// readFrom reads a body, up to the first byte beyond MaxChunk.
func (c *arrival) readFrom(ctx context.Context, body io.Reader) error {
	for c.size <= MaxChunk {
		piece := min(max(firstPiece, c.size), lastPiece, MaxChunk+1-c.size)
		if err := c.grow(ctx, piece); err != nil {
			return err
		}
		data, n := make([]byte, piece), 0
		var err error
		for n < len(data) && err == nil {
			var more int
			more, err = body.Read(data[n:])
			n += more
		}
		c.pieces, c.size = append(c.pieces, data[:n]), c.size+n
		if errors.Is(err, io.EOF) {
			return c.arrived()
		}
		if err != nil {
			return cmp.Or(c.arrived(), err)
		}
	}
	return nil
}

// arrived ends the reading: from now on the chunk cannot give way. If it has, that is the error.
func (c *arrival) arrived() error {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	delete(c.memory.reading, c)
	if c.givesWay {
		return errGaveWay
	}
	return nil
}

// reader returns a reader of what has arrived.
func (c *arrival) reader() io.Reader {
	readers := make([]io.Reader, len(c.pieces))
	for i, piece := range c.pieces {
		readers[i] = bytes.NewReader(piece)
	}
	return io.MultiReader(readers...)
}

// grow takes n bytes of memory. If they are not free, another chunk gives way; grow waits for
// them up to uploadWait.
func (c *arrival) grow(ctx context.Context, n int) error {
	timeout := time.NewTimer(uploadWait)
	defer timeout.Stop()
	for {
		freed, err := c.memory.take(c, n)
		if freed == nil || err != nil {
			return err
		}
		retry := time.NewTimer(interruptAgain)
		select {
		case <-freed:
		case <-retry.C:
		case <-timeout.C:
			err = errGaveWay
		case <-ctx.Done():
			err = ctx.Err()
		}
		if retry.Stop(); err != nil {
			return err
		}
	}
}

// take takes n bytes for a chunk if they are free. If not, it makes another one give way, and
// returns a channel that is closed when memory becomes free.
func (m *uploadMemory) take(c *arrival, n int) (freed <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.givesWay:
		return nil, errGaveWay
	case n <= m.left:
		m.left -= n
		m.held[c.tenant] += n
		c.held += n
		return nil, nil
	}
	if slow := m.slowest(c.tenant); slow != nil && slow != c {
		slow.givesWay = true
		slow.interrupt()
	}
	return m.freed, nil
}

// slowest returns the chunk that gives way: one that already does, or the slowest one of the
// tenant that holds the most; of several such tenants, of the given one. It is nil if all
// chunks of the tenant have arrived.
func (m *uploadMemory) slowest(tenant string) (slow *arrival) {
	for name, held := range m.held {
		if held > m.held[tenant] {
			tenant = name
		}
	}
	least := 0.0
	for c := range m.reading {
		if c.givesWay {
			return c
		}
		// Chunks that have just begun count as slow, so that they do not drive others out.
		speed := float64(c.held) / (time.Since(c.began) + speedAfter).Seconds()
		if c.tenant == tenant && (slow == nil || speed < least) {
			slow, least = c, speed
		}
	}
	return slow
}
