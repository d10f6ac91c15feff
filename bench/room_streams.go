package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// StreamsOpen is the memory of open event streams.
type StreamsOpen struct {
	// Open is how many streams are open, each of a visitor of its own who has received an event.
	Open int
	// Resident is the server's present resident set, and Each its growth per stream since none was
	// open, in bytes.
	Resident, Each int64
}

// The opening of streams.
const (
	streamOpeners = 32
	// streamRest is how long streams are open before memory is read.
	streamRest = 3 * time.Second
	// eventWithin bounds the wait for the first event.
	eventWithin = 10 * time.Second
)

// Streams opens event streams at sluice, on the embedded store, and measures their memory at each
// of the counts, which rise.
func (e *Environment) Streams(ctx context.Context, counts []int) (all []StreamsOpen, err error) {
	most := counts[len(counts)-1]
	server, err := e.startRooms(ctx, false, "--kafka", "off")
	if err != nil {
		return nil, err
	}
	room := &hallRoom{name: EmbeddedName, server: server}
	streams := &openStreams{address: server.address, crowd: &room.crowd}
	defer func() { err = errors.Join(err, streams.close(), server.stop()) }()
	if _, err := room.enter(ctx, load{connections: HallClients, most: most + roomInside}); err != nil {
		return nil, err
	}
	// The memory that entering has left behind does not count.
	if err := server.restart(ctx); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(server.process.command.Process.Pid)
	before, err := memoryOf(pid)
	if err != nil {
		return nil, err
	}
	for _, count := range counts {
		if err := streams.openTo(ctx, count); err != nil {
			return all, err
		}
		if err := rest(ctx, streamRest); err != nil {
			return all, err
		}
		now, err := memoryOf(pid)
		if err != nil {
			return all, err
		}
		all = append(all, StreamsOpen{count, now.Resident, (now.Resident - before.Resident) / int64(count)})
	}
	return all, nil
}

// openStreams are the client's ends of streams.
type openStreams struct {
	address string
	crowd   *crowd

	mu   sync.Mutex
	open []net.Conn
}

// openTo opens streams until the given number are open.
func (s *openStreams) openTo(ctx context.Context, count int) error {
	var (
		wait    sync.WaitGroup
		numbers = make(chan int)
		failed  firstError
	)
	for range streamOpeners {
		wait.Go(func() {
			for number := range numbers {
				if failed.get() == nil {
					failed.set(s.openOne(ctx, number))
				}
			}
		})
	}
	for number := len(s.open); number < count; number++ {
		numbers <- number
	}
	close(numbers)
	wait.Wait()
	return failed.get()
}

// openOne opens the stream of a visitor, and waits for its first event.
func (s *openStreams) openOne(ctx context.Context, number int) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.open = append(s.open, connection)
	s.mu.Unlock()
	if err := connection.SetDeadline(time.Now().Add(eventWithin)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(connection, "GET /v1/rooms/%s/visitors/me/watch HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"+
		"Authorization: Bearer %s\r\n\r\n", roomName, s.crowd.ticket(number))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(connection)
	for first := true; lines.Scan(); first = false {
		if first && !strings.Contains(lines.Text(), " 200 ") {
			return fmt.Errorf("a stream is answered %q", lines.Text())
		}
		if strings.HasPrefix(lines.Text(), "data") {
			return nil
		}
	}
	return fmt.Errorf("a stream ended without an event: %w", errors.Join(lines.Err(), errSilent))
}

func (s *openStreams) close() error {
	var err error
	for _, connection := range s.open {
		err = errors.Join(err, connection.Close())
	}
	return err
}
