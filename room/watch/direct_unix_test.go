//go:build unix

package watch

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// pair returns both ends of a connection over loopback.
func pair(t *testing.T) (client, server net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// A full socket keeps one part, accepts no other, and is closed after WriteTime; a socket that is
// read in time gets every byte in order.
func TestSlowSocket(t *testing.T) {
	client, server := pair(t)
	d, ok := newDirect(server, []byte("head|"), false)
	if !ok {
		t.Fatal("no socket")
	}
	now := time.Now()
	part := []byte(strings.Repeat("x", 100_000) + "|")
	sent := 0
	for {
		took, err := d.send(part, now)
		if err != nil {
			t.Fatal(err)
		}
		if !took {
			break
		}
		sent++
	}
	if len(d.kept) == 0 || len(d.kept) > len(part) {
		t.Fatalf("%d bytes are kept", len(d.kept))
	}
	// Buffers in between may accept a little more several times.
	until.True(t, "the time is over", func() bool {
		if took, err := d.send(part, d.since); err != nil {
			t.Error(err)
		} else if took {
			sent++
		}
		if err := d.flush(d.since.Add(WriteTime - 1)); err != nil {
			t.Error("before its time:", err)
		}
		err := d.flush(d.since.Add(WriteTime))
		if err != nil && !errors.Is(err, errSlow) {
			t.Error(err)
		}
		return err != nil
	})
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(client)
		read <- string(text)
	}()
	until.True(t, "all is taken", func() bool {
		if err := d.flush(now); err != nil {
			t.Fatal(err)
		}
		return len(d.kept) == 0
	})
	d.end()
	if got, want := <-read, "head|"+strings.Repeat(string(part), sent); got != want {
		t.Errorf("read %d bytes, want %d", len(got), len(want))
	}
}
