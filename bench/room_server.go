package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// roomName is the room of all measures.
const roomName = "shop"

// roomSettings are the settings of the room: nobody is called during a measure, and nobody is
// removed for not asking.
const roomSettings = `{"mode":"teller","capacity":100,"pass_ttl_ms":86400000,"abandon_after_ms":86400000,"grace_ms":86400000,"max_waiting":10000000}`

// roomInside is how many visitors are let in at once and so are not in the queue.
const roomInside = 100

// startRooms starts sluice with one room, on the embedded store or on a Redis of its own. The
// further options are those of "sluice serve".
func (e *Environment) startRooms(ctx context.Context, onRedis bool, options ...string) (s *webServer, err error) {
	command, err := e.command(ctx, "sluice", sluiceCommand, "")
	if err != nil {
		return nil, err
	}
	s = &webServer{}
	defer func() {
		if err != nil && s.redis != nil {
			err = errors.Join(err, s.redis.stop())
		}
	}()
	if onRedis {
		if s.redis, err = startRedis(ctx, e.folder, "everysec"); err != nil {
			return nil, err
		}
		options = append(options, "--state", "unix://"+s.redis.socket)
	}
	self := account{os.Geteuid(), os.Getegid()}
	if s.folder, err = folderFor(e.folder, "rooms-", self); err != nil {
		return nil, err
	}
	if s.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	options = append([]string{"serve", "--data", s.folder, "--http", s.address, "--log-level", "warn", "--pprof"}, options...)
	s.again = func(ctx context.Context) (*process, error) {
		return start(ctx, self, s.folder, listens(s.address), command, options...)
	}
	if s.process, err = s.again(ctx); err != nil {
		return nil, errors.Join(err, removeAll(s.folder))
	}
	if err := s.putRoom(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// putRoom creates the room once the server is ready.
func (s *webServer) putRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+s.address+"/v1/rooms/"+roomName, bytes.NewReader([]byte(roomSettings)))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
			if err = errors.Join(err, answer.Body.Close()); err != nil {
				return err
			}
			if answer.StatusCode == http.StatusCreated {
				return nil
			}
			if answer.StatusCode != http.StatusServiceUnavailable {
				return fmt.Errorf("make the room: %s: %s", answer.Status, text)
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// crowd has the tickets of waiting visitors.
type crowd struct {
	text []byte
	ends []int
}

var (
	ticketBegin = []byte(`{"ticket":"`)
	waitingMark = []byte(`"status":"waiting"`)
)

// add stores the ticket of an answer, if the visitor waits.
func (c *crowd) add(body []byte) error {
	rest, found := bytes.CutPrefix(body, ticketBegin)
	end := bytes.IndexByte(rest, '"')
	if !found || end < 0 {
		return fmt.Errorf("an answer has no ticket: %s", body)
	}
	if bytes.Contains(rest, waitingMark) {
		c.text = append(c.text, rest[:end]...)
		c.ends = append(c.ends, len(c.text))
	}
	return nil
}

// len returns the number of tickets.
func (c *crowd) len() int { return len(c.ends) }

func (c *crowd) ticket(i int) []byte {
	begin := 0
	if i > 0 {
		begin = c.ends[i-1]
	}
	return c.text[begin:c.ends[i]]
}

// enterRequest lets a visitor without a key enter.
func enterRequest(b []byte, _ int) []byte {
	return append(b, "POST /v1/rooms/"+roomName+"/visitors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"...)
}

// askRequest asks for the places of the crowd, in an order that jumps about.
func (c *crowd) askRequest(b []byte, n int) []byte {
	// The stride is a prime, so that each visitor comes once before any is repeated.
	const stride = 7_368_787
	b = append(b, "GET /v1/rooms/"+roomName+"/visitors/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "...)
	b = append(b, c.ticket(n*stride%c.len())...)
	return append(b, "\r\n\r\n"...)
}

// waits returns an error for the answer to a visitor who does not wait.
func waits(_ int, body []byte) error {
	if !bytes.Contains(body, waitingMark) {
		return fmt.Errorf("does not wait: %s", body)
	}
	return nil
}
