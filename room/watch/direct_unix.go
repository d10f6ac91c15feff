//go:build unix

package watch

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// direct is a sink that writes to a socket without waiting.
type direct struct {
	conn    net.Conn
	raw     syscall.RawConn
	chunked bool
	// kept is what the socket has not accepted yet, and since when.
	kept  []byte
	since time.Time
}

// socketBuffer is how many bytes the system buffers for a client that does not read;
// Linux doubles it.
const socketBuffer = 16 << 10

// newDirect writes the head. It returns false if the connection is not a socket.
func newDirect(conn net.Conn, head []byte, chunked bool) (*direct, bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, false
	}
	d := &direct{conn: conn, raw: raw, chunked: chunked, kept: head, since: time.Now()}
	limitSilence(raw)
	if sized, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = sized.SetWriteBuffer(socketBuffer) // Otherwise the system's size applies.
	}
	// An error occurs again with the next write.
	_ = d.flush(d.since)
	return d, true
}

func (d *direct) send(part []byte, now time.Time) (bool, error) {
	if err := d.flush(now); err != nil || len(d.kept) > 0 {
		return false, err
	}
	frame := buffers.Get().(*[]byte)
	defer buffers.Put(frame)
	*frame = appendChunk((*frame)[:0], part, d.chunked)
	written, err := d.write(*frame)
	if err != nil {
		return false, err
	}
	if written < len(*frame) {
		d.kept, d.since = append([]byte(nil), (*frame)[written:]...), now
	}
	return true, nil
}

func (d *direct) flush(now time.Time) error {
	if len(d.kept) == 0 {
		return nil
	}
	written, err := d.write(d.kept)
	if err != nil {
		return err
	}
	if written > 0 {
		d.kept, d.since = d.kept[written:], now
	}
	if len(d.kept) == 0 {
		d.kept = nil
		return nil
	}
	if now.Sub(d.since) >= WriteTime {
		return errSlow
	}
	return nil
}

// write writes as much as the socket accepts without waiting.
func (d *direct) write(b []byte) (written int, err error) {
	failed := d.raw.Write(func(fd uintptr) bool {
		written, err = syscall.Write(int(fd), b)
		return true // never wait
	})
	if failed != nil {
		return 0, failed
	}
	if wouldBlock(err) {
		return 0, nil
	}
	return max(written, 0), err
}

// gone reads and discards input, which a client should not send: the end of the input
// means that the client has closed the connection.
func (d *direct) gone() bool {
	var input [256]byte
	var n int
	var err error
	failed := d.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), input[:])
		return true
	})
	if failed == nil && n == 0 && err == nil {
		failed = io.EOF
	}
	return failed != nil || (err != nil && !wouldBlock(err))
}

// wouldBlock reports whether an operation was not possible without waiting.
func wouldBlock(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}

func (d *direct) end() {
	if d.chunked && len(d.kept) == 0 {
		_, _ = d.write(lastChunk) // The connection is closed in any case.
	}
	_ = d.conn.Close()
}
