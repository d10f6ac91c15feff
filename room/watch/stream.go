package watch

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
)

// removed is the slot of a stream that the hub does not have any more.
const removed = -1

// stream is one visitor's. What it costs is what counts here: it lives for as
// long as the visitor waits.
type stream struct {
	spec Stream

	// The hub's lock guards these. at is the place in the schedule, counted from 1.
	slot int
	at   int
	due  time.Time

	mu    sync.Mutex
	sink  sink
	ended bool
	wrote time.Time
	// What was told last, and the number of that event.
	state    room.State
	position int64
	drawn    bool
	events   int64
}

// sink is the connection below a stream. None of its methods waits, and all are
// called with the stream's lock held.
type sink interface {
	// send writes a part, or keeps it; false: it still keeps one, and this part was
	// not taken.
	send(part []byte, now time.Time) (bool, error)
	// flush writes what was kept. An error: the connection is gone, or has taken
	// nothing for WriteTime.
	flush(now time.Time) error
	// gone tells whether the client has closed the connection.
	gone() bool
	// end closes the connection after what was sent.
	end()
}

var errSlow = errors.New("the connection takes nothing")

var comment = []byte(":\n\n")

// begin says when to come back.
func (s *stream) begin(retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	b := append([]byte("retry: "), strconv.FormatInt(retry.Milliseconds(), 10)...)
	// An error shows again with the first event.
	_, _ = s.sink.send(append(b, "\n\n"...), now)
	s.wrote = now
}

// changed tells whether an answer is news. A pass is.
func (s *stream) changed(a *room.Answer) bool {
	return s.events == 0 || a.State != s.state || a.Position != s.position || (a.Draw != nil) != s.drawn || a.Pass != ""
}

// answer writes an event if an answer is news, and tells whether it did. An error:
// the stream is over.
func (s *stream) answer(a *room.Answer, now time.Time) (told bool, err error) {
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
	told, err = s.sink.send(b, now)
	if told {
		s.events++
		s.state, s.position, s.drawn, s.wrote = a.State, a.Position, a.Draw != nil, now
	}
	return told, err
}

// part writes something else.
func (s *stream) part(part []byte, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	took, err := s.sink.send(part, now)
	if took {
		s.wrote = now
	}
	return err
}

// pulse writes what was kept, and a comment after a long silence. An error: the
// stream is over.
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
	took, err := s.sink.send(comment, now)
	if took {
		s.wrote = now
	}
	return err
}

// gone tells whether the client is.
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

// reasonRemoved is told when the room is not there any more, or is another one of
// the same name.
const reasonRemoved = "removed"

// ended tells whether an error of a visitor's result is final, and why.
func ended(err error) (reason string, final bool) {
	var gone *room.GoneError
	switch {
	case errors.As(err, &gone):
		return string(gone.Reason), true
	case errors.Is(err, room.ErrNoRoom), errors.Is(err, room.ErrBadTicket):
		return reasonRemoved, true
	}
	return "", false
}

func goneEvent(reason string) []byte {
	return []byte("event: gone\ndata: {\"reason\":" + strconv.Quote(reason) + "}\n\n")
}

// buffers are for events while they are put together. Their size follows the
// events, of a few hundred bytes.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
