package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// load sends requests over HTTP/1.1 on persistent connections, one at a time on each. One thread
// waits for all of them, so that it takes as little processor time as possible from the measured
// server.
type load struct {
	address     string
	connections int
	// request appends request n, from 0 on.
	request func(b []byte, n int) []byte
	// answer is called with the body of each answer with status 200 to 299; another status is an
	// error. It may be nil.
	answer func(n int, body []byte) error
	// most is how many requests are sent, and during for how long; 0: no bound. At least one of
	// them is needed.
	most   int
	during time.Duration
	// perSecond is a steady rate, for which latency counts from when each request was due. 0: the
	// next request is sent when one is answered.
	perSecond float64
}

// answersWithin bounds the wait for the last answers.
const answersWithin = time.Minute

// keptUp is the share of the due requests that must have been sent at the end.
const keptUp = 0.97

var errSilent = errors.New("the server does not answer")

// driver runs a load.
type driver struct {
	load
	epoll          int
	lines          []*loadLine
	free           []*loadLine
	began, ends    time.Time
	sent, answered int
	times          []time.Duration
}

// loadLine is a connection.
type loadLine struct {
	socket, n int
	from      time.Time
	in        []byte
	out       []byte
}

// run sends the load, and returns the latency of the answers.
func (l load) run(ctx context.Context) (latency Latency, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := &driver{load: l}
	if d.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return latency, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.connect(); err != nil {
		return latency, err
	}
	d.began = time.Now()
	d.ends = d.began.Add(d.during)
	if err := d.drive(ctx); err != nil {
		return latency, err
	}
	took := time.Since(d.began)
	if due := d.due(took); d.perSecond > 0 && float64(d.sent) < keptUp*float64(due) {
		return latency, fmt.Errorf("the server %w with %.0f/s: %d of %d requests were sent", ErrBehind, d.perSecond, d.sent, due)
	}
	return latencyOf(d.times, took)
}

// due returns how many requests of a steady rate are due after a time.
func (d *driver) due(after time.Duration) int {
	if d.during > 0 {
		after = min(after, d.during)
	}
	due := int(after.Seconds() * d.perSecond)
	if d.most > 0 {
		due = min(due, d.most)
	}
	return due
}

func (d *driver) connect() error {
	to, err := resolve(d.address)
	if err != nil {
		return err
	}
	for range d.connections {
		socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		line := &loadLine{socket: socket, in: make([]byte, 0, 4096)}
		d.lines = append(d.lines, line)
		err = errors.Join(syscall.Connect(socket, to), syscall.SetNonblock(socket, true),
			syscall.SetsockoptInt(socket, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1),
			syscall.EpollCtl(d.epoll, syscall.EPOLL_CTL_ADD, socket, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(len(d.lines) - 1)}))
		if err != nil {
			return fmt.Errorf("connect to %s: %w", d.address, err)
		}
	}
	d.free = append(d.free, d.lines...)
	return nil
}

func (d *driver) close() error {
	err := syscall.Close(d.epoll)
	for _, line := range d.lines {
		err = errors.Join(err, syscall.Close(line.socket))
	}
	return err
}

// more reports whether another request is to be sent: at least one is.
func (d *driver) more(now time.Time) bool {
	return d.sent == 0 || (d.most == 0 || d.sent < d.most) && (d.during == 0 || now.Before(d.ends))
}

func (d *driver) drive(ctx context.Context) error {
	var ready [256]syscall.EpollEvent
	heard := d.began
	for {
		now := time.Now()
		if err := d.sendDue(now); err != nil {
			return err
		}
		if d.sent == d.answered && !d.more(now) {
			return nil
		}
		n, err := syscall.EpollWait(d.epoll, ready[:], d.patience(now))
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if n > 0 {
			heard = now
		} else if d.sent > d.answered && now.Sub(heard) > answersWithin {
			return errSilent
		}
		for i := range max(n, 0) {
			if err := d.receive(d.lines[ready[i].Fd]); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// sendDue sends due requests on free connections.
func (d *driver) sendDue(now time.Time) error {
	for len(d.free) > 0 && d.more(now) {
		from := now
		if d.perSecond > 0 {
			from = d.began.Add(time.Duration(float64(d.sent) / d.perSecond * float64(time.Second)))
			if from.After(now) {
				return nil
			}
		}
		last := len(d.free) - 1
		line := d.free[last]
		d.free = d.free[:last]
		if err := d.send(line, from); err != nil {
			return err
		}
	}
	return nil
}

// patience returns how many milliseconds to wait for answers: at most until the next request is
// due.
func (d *driver) patience(now time.Time) int {
	if d.perSecond == 0 || len(d.free) == 0 || !d.more(now) {
		return 100
	}
	next := d.began.Add(time.Duration(float64(d.sent) / d.perSecond * float64(time.Second)))
	return int(min(max(next.Sub(now)/time.Millisecond, 1), 100))
}

func (d *driver) send(line *loadLine, from time.Time) error {
	line.n, line.from = d.sent, from
	line.out = d.request(line.out[:0], line.n)
	d.sent++
	written, err := syscall.Write(line.socket, line.out)
	if err == nil && written < len(line.out) {
		err = fmt.Errorf("%d of %d bytes were written", written, len(line.out))
	}
	return err
}

// receive reads from a connection. After a whole answer the connection is free again.
func (d *driver) receive(line *loadLine) error {
	if len(line.in) == cap(line.in) {
		line.in = append(line.in, 0)[:len(line.in)]
	}
	n, err := syscall.Read(line.socket, line.in[len(line.in):cap(line.in)])
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return nil
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("the server closed a connection after %q", line.in)
	}
	line.in = line.in[:len(line.in)+n]
	body, whole, err := readAnswer(line.in)
	if err != nil || !whole {
		return err
	}
	d.answered++
	d.times = append(d.times, time.Since(line.from))
	if d.answer != nil {
		if err := d.answer(line.n, body); err != nil {
			return err
		}
	}
	line.in = line.in[:0]
	d.free = append(d.free, line)
	return nil
}
