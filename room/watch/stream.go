package watch

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// removed is the slot of a stream that the hub has dropped.
const removed = -1

// stream is the stream of one visitor. Its size matters: it lives as long as the
// visitor waits.
type stream struct {
	spec Stream

	// Hub.mu guards these. at is the place in Hub.due.
	slot int
	at   int
	due  time.Time

	mu    sync.Mutex
	sink  sink
	ended bool
	wrote time.Time
	// The last event, and its number.
	state    room.State
	position int64
	drawn    bool
	events   int64
}

// sink is the connection below a stream. Its methods never wait, and are called with
// stream.mu held.
type sink interface {
	// send writes or buffers a part. It returns false if the buffer is full: the part
	// is discarded.
	send(part []byte, now time.Time) (bool, error)
	// flush writes what is buffered. It fails if the connection is gone, or has
	// accepted nothing for WriteTime.
	flush(now time.Time) error
	// gone reports whether the client has closed the connection.
	gone() bool
	// end closes the connection.
	end()
}

var errSlow = errors.New("the connection accepts no data")

var comment = []byte(":\n\n")

// begin sends the delay after which the client reconnects.
func (s *stream) begin(retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	b := append([]byte("retry: "), strconv.FormatInt(retry.Milliseconds(), 10)...)
	// An error occurs again with the first event.
	_, _ = s.sink.send(append(b, "\n\n"...), now)
	s.wrote = now
}

// changed reports whether an answer differs from the last one. A pass is always new.
func (s *stream) changed(a *engine.Answer) bool {
	return s.events == 0 || a.State != s.state || a.Position != s.position || (a.Draw != nil) != s.drawn || a.Pass != ""
}

// answer writes an event if an answer is new, and reports whether it did. After an
// error the stream is over.
func (s *stream) answer(a *engine.Answer, now time.Time) (sent bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.changed(a) {
		return false, nil
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := (*buffer)[:0]
	b = append(b, "id: "...)
	b = strconv.AppendInt(b, s.events+1, 10)
	b = append(b, "\ndata: "...)
	b = s.spec.Format(b, a)
	b = append(b, "\n\n"...)
	*buffer = b
	sent, err = s.sink.send(b, now)
	if sent {
		s.events++
		s.state, s.position, s.drawn, s.wrote = a.State, a.Position, a.Draw != nil, now
	}
	return sent, err
}

// part writes anything but an answer.
func (s *stream) part(part []byte, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	sent, err := s.sink.send(part, now)
	if sent {
		s.wrote = now
	}
	return err
}

// pulse flushes the stream, and writes a comment after a long silence. After an error
// the stream is over.
func (s *stream) pulse(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	if err := s.sink.flush(now); err != nil {
		return err
	}
	if now.Sub(s.wrote) < heartbeat {
		return nil
	}
	sent, err := s.sink.send(comment, now)
	if sent {
		s.wrote = now
	}
	return err
}

// gone reports whether the client is gone.
func (s *stream) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.sink.gone()
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		s.sink.end()
	}
}

// reasonRemoved is sent when the room does not exist any more, or is a new one of the
// same name.
const reasonRemoved = "removed"

// ended reports whether an error of a result is final, and why.
func ended(err error) (reason string, final bool) {
	var gone *room.GoneError
	switch {
	case errors.As(err, &gone):
		return string(gone.Reason), true
	case errors.Is(err, room.ErrNoRoom), errors.Is(err, engine.ErrBadTicket):
		return reasonRemoved, true
	}
	return "", false
}

func goneEvent(reason string) []byte {
	return []byte("event: gone\ndata: {\"reason\":" + strconv.Quote(reason) + "}\n\n")
}

// buffers are for events while they are built, of a few hundred bytes.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
