package netlab

import (
	"bufio"
	"net"
	"net/netip"
	"testing"
	"time"
)

// through connects to a listener of node 1 through a proxy, as node 0, and returns both ends.
func through(t *testing.T) (p *Proxy, client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	target := listener.Addr().(*net.TCPAddr).AddrPort()
	p, err = newProxy(netip.MustParseAddrPort("127.0.0.1:0"), 1, target, func(netip.Addr) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if client, err = net.Dial("tcp", p.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return p, client, server
}

// say sends a line and expects it at the other end.
func say(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() || lines.Text() != want {
		t.Fatalf("heard %q (%v), want %q", lines.Text(), lines.Err(), want)
	}
}

func TestProxyHoldsOneWay(t *testing.T) {
	p, client, server := through(t)
	atClient, atServer := bufio.NewScanner(client), bufio.NewScanner(server)
	say(t, client, "one")
	hear(t, atServer, "one")
	p.Hold(Way{1, 0}, true)
	say(t, client, "two") // the other direction is open
	hear(t, atServer, "two")
	say(t, server, "late")
	heard := make(chan bool)
	go func() { heard <- atClient.Scan() }()
	select {
	case <-heard:
		t.Fatal("what is held was heard")
	case <-time.After(100 * time.Millisecond):
	}
	p.Hold(Way{1, 0}, false)
	if !<-heard || atClient.Text() != "late" {
		t.Errorf("heard %q after it was held, want late", atClient.Text())
	}
}

func TestProxyDelays(t *testing.T) {
	p, client, server := through(t)
	atClient, atServer := bufio.NewScanner(client), bufio.NewScanner(server)
	const delay = 80 * time.Millisecond
	p.Delay(Way{0, 1}, delay)
	began := time.Now()
	say(t, client, "a")
	hear(t, atServer, "a")
	if took := time.Since(began); took < delay {
		t.Errorf("heard after %v, want at least %v", took, delay)
	}
	p.Delay(Way{0, 1}, time.Hour)
	say(t, client, "b")
	p.Delay(Way{0, 1}, 0) // also for waiting data
	hear(t, atServer, "b")
	say(t, server, "c")
	hear(t, atClient, "c")
}

func TestProxyEndsConnections(t *testing.T) {
	p, client, server := through(t)
	say(t, client, "last")
	client.Close()
	atServer := bufio.NewScanner(server)
	hear(t, atServer, "last")
	if atServer.Scan() {
		t.Errorf("heard %q after the end", atServer.Text())
	}
	p.Close()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		conn.Close()
		t.Error("a closed proxy accepts connections")
	}
}
