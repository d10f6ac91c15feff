package connlimit

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/internal/testkit/ports"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Clients are told apart by their addresses, and those in one IPv6 network count together.
func TestConnectionsOfOneClient(t *testing.T) {
	l := New(Bounds{Total: 1000, PerClient: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, quiet())
	from := func(address string) bool {
		t.Helper()
		addr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))
		return l.admit(l.networks(addr), address)
	}
	for _, test := range []struct {
		address  string
		admitted bool
	}{
		{"192.0.2.1", true}, {"192.0.2.1", true}, {"192.0.2.1", false}, {"::ffff:192.0.2.1", false}, {"192.0.2.2", true},
		{"10.1.1.1", true}, {"10.1.1.1", true}, {"10.1.1.1", true}, // a proxy
		{"127.0.0.1", true}, {"127.0.0.1", true}, {"::1", true}, {"::1", true}, {"::1", true}, // this machine
		{"2001:db8:0:1::1", true}, {"2001:db8:0:1::2", true}, {"2001:db8:0:1::3", false},
		{"2001:db8:0:2::1", true}, {"2001:db8:0:2::1", true}, {"2001:db8:0:3::1", true}, {"2001:db8:0:4::1", true},
		{"2001:db8:0:5::1", true}, {"2001:db8:0:6::1", true}, {"2001:db8:0:7::1", false}, // eight of one network of 48 bits
		{"2001:db8:1:1::1", true},
	} {
		if got := from(test.address); got != test.admitted {
			t.Errorf("a connection from %s: %v, want %v", test.address, got, test.admitted)
		}
	}
	addr := &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1}
	l.release(l.networks(addr))
	if !from("192.0.2.1") || from("192.0.2.1") {
		t.Error("a connection that ends does not leave exactly one place")
	}
}

// Beyond the bound a connection is reset, whichever listener it comes to, until one ends.
func TestConnectionsInAll(t *testing.T) {
	l := New(Bounds{Total: 2}, quiet())
	var accepted [2]chan net.Conn
	var addresses [2]string
	for i := range accepted {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		accepted[i], addresses[i] = make(chan net.Conn), listener.Addr().String()
		go func() {
			bounded := l.Listen(listener)
			for {
				conn, err := bounded.Accept()
				if err != nil {
					close(accepted[i])
					return
				}
				accepted[i] <- conn
			}
		}()
	}
	dial := func(i int) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", addresses[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial(0)
	first := <-accepted[0]
	dial(1)
	<-accepted[1]
	third, err := net.Dial("tcp", addresses[0])
	if err == nil {
		defer third.Close()
		_, err = third.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the third connection ends with %v, want a reset", err)
	}
	if got := testutil.ToFloat64(l.refused.WithLabelValues("total")); got != 1 {
		t.Errorf("%v connections were refused, want 1", got)
	}
	_ = first.Close()
	_ = first.Close()
	dial(1)
	_ = (<-accepted[1]).Close()
}

// Connections that are opened for clients take places of the total.
func TestConnectionsForClients(t *testing.T) {
	listener, err := net.Listen("tcp", ports.Addrs(t, 1)[0]) // which nobody else takes once it is closed
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dial := New(Bounds{Total: 1}, quiet()).Dial(&net.Dialer{})
	first, err := dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t.Context(), "tcp", listener.Addr().String()); !errors.Is(err, ErrTooMany) {
		t.Errorf("a second connection: %v, want ErrTooMany", err)
	}
	_ = first.Close()
	_ = listener.Close()
	for range 2 { // one that fails leaves its place
		if _, err := dial(t.Context(), "tcp", listener.Addr().String()); err == nil || errors.Is(err, ErrTooMany) {
			t.Errorf("with nobody there: %v", err)
		}
	}
}

// Where few files may be open, half of them are for the stores.
func TestDescriptorsForStores(t *testing.T) {
	for files, want := range map[uint64]int{256: 128, 1024: 512, 8192: 4096, 65536: 61440, 1 << 60: 1<<30 - 4096} {
		if got := connectionsOf(files); got != want {
			t.Errorf("with %d files there may be %d connections, want %d", files, got, want)
		}
	}
}
