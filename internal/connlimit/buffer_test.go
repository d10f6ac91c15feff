//go:build unix

package connlimit

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// mostUnread is what the kernel may hold of an answer at one connection: it counts
// bookkeeping too, and the last segment may go beyond the bound.
const mostUnread = 2*answerBuffer + 64<<10

// To a client that reads nothing, a server can write little before it has to wait.
func TestAnswersInTheKernel(t *testing.T) {
	listener := listen(t)
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const ofTheClient = 64 << 10 // much more than it asks for
	if err := client.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	server, err := New(Bounds{Total: 1}, quiet()).Listen(listener).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	written := 0
	control(t, server.(*conn).TCPConn, func(fd int) error {
		for chunk := make([]byte, 16<<10); ; {
			n, err := unix.Write(fd, chunk)
			if err != nil {
				return err
			}
			written += n
		}
	}, unix.EAGAIN)
	if written < answerBuffer/2 || written > mostUnread+ofTheClient {
		t.Errorf("%d bytes were written to a client that reads nothing, want %d to %d", written, answerBuffer/2, mostUnread+ofTheClient)
	}
}

// However fast a client has read so far, the buffer for what it is sent, and the one for what a
// server sends for it, are as large as before.
func TestBuffersDoNotGrow(t *testing.T) {
	listener := listen(t)
	l := New(Bounds{Total: 2}, quiet())
	dialed, err := l.Dial(&net.Dialer{})(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := l.Listen(listener).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	const size = 32 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := accepted.Write(make([]byte, size))
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, dialed, size); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for _, buffer := range []struct {
		name   string
		of     net.Conn
		option int
	}{
		{"an accepted connection's buffer to send", accepted, unix.SO_SNDBUF},
		{"a dialed connection's buffer to receive", dialed, unix.SO_RCVBUF},
	} {
		bytes := 0
		control(t, buffer.of.(*conn).TCPConn, func(fd int) (err error) {
			bytes, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, buffer.option)
			return err
		}, nil)
		if bytes > 2*answerBuffer {
			t.Errorf("%s has %d bytes, want at most %d", buffer.name, bytes, 2*answerBuffer)
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// control calls f once with the file of a connection, which never blocks.
func control(t *testing.T, conn *net.TCPConn, f func(fd int) error, want error) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got error
	if err := raw.Control(func(fd uintptr) { got = f(int(fd)) }); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(got, want) {
		t.Fatalf("the system says %v, want %v", got, want)
	}
}
