package kafka

import (
	"crypto/tls"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// told returns the addresses of brokers that a client learns, by their numbers; each request has to tell it the same ones.
func told(p *peer) map[int32]string {
	p.t.Helper()
	all := map[int32]string{}
	for _, b := range ask[*kmsg.MetadataResponse](p, 9, metadataRequest()).Brokers {
		all[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
	}
	described := map[int32]string{}
	for _, b := range ask[*kmsg.DescribeClusterResponse](p, 0, kmsg.NewPtrDescribeClusterRequest()).Brokers {
		described[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
	}
	if !maps.Equal(described, all) {
		p.t.Errorf("DescribeCluster has %v, Metadata %v", described, all)
	}
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey = "group"
	if r := ask[*kmsg.FindCoordinatorResponse](p, 3, request); r.ErrorCode == 0 {
		if got := fmt.Sprintf("%s:%d", r.Host, r.Port); got != all[r.NodeID] {
			p.t.Errorf("FindCoordinator has node %d at %s, Metadata at %s", r.NodeID, got, all[r.NodeID])
		}
	} else if len(all) == 1 {
		p.t.Errorf("FindCoordinator: error %d", r.ErrorCode)
	}
	return all
}

// dialListener connects to a listener of a server.
func dialListener(t testing.TB, s *Server, listener int, secure *tls.Config) *peer {
	t.Helper()
	p := dialAt(t, s.listeners[listener].Addr().String())
	if secure != nil {
		p.conn = tls.Client(p.conn, secure)
	}
	return p
}

// A client learns the address of the listener through which it came: the one it has connected to, or the one that is advertised.
func TestListenersSideBySide(t *testing.T) {
	authority := certtest.New(t)
	secure := secureOptions(t, authority).TLS
	b := startBroker(t, storeInMemory(), topic.Config{Advertise: topic.Advertised{
		Host: "127.0.0.1", Port: 9092, Listeners: map[string]string{"internal": "127.0.0.1:9092", "public": "", "partners": "partners.example:9094"},
	}})
	s := start(t, b, Options{Name: "internal", Advertise: "internal.example:9092", Also: []Listener{
		{Name: "public", Addr: "127.0.0.1:0", TLS: secure},
		{Name: "partners", Addr: "127.0.0.1:0", TLS: secure, Advertise: "partners.example:9094"},
	}})
	shown := authority.Client(authority.Issue("client"))
	shown.ServerName = "127.0.0.1"
	for i, want := range []string{"internal.example:9092", s.listeners[1].Addr().String(), "partners.example:9094"} {
		config := shown
		if i == 0 {
			config = nil
		}
		if got := told(dialListener(t, s, i, config)); !maps.Equal(got, map[int32]string{1: want}) {
			t.Errorf("listener %d: %v, want %s", i, got, want)
		}
	}
	if err := dialListener(t, s, 0, shown).conn.(*tls.Conn).HandshakeContext(t.Context()); err == nil {
		t.Error("a listener without TLS speaks TLS")
	}
}

// When one of the addresses is taken, the server does not start, and leaves the others.
func TestATakenListener(t *testing.T) {
	b := startBroker(t, storeInMemory(), topic.Config{})
	s := start(t, b, Options{})
	second := NewServer(b, Options{Name: "a", Addr: "127.0.0.1:0", Also: []Listener{{Name: "b", Addr: s.Addr()}}})
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("it starts at a taken address: %v", err)
	}
	if _, err := second.listeners[0].Accept(); err == nil {
		t.Error("the first listener is open")
	}
	stop(t, second.Stop)
	if err := (Options{Name: "a", Also: []Listener{{Name: "a"}}}).Validate(); err == nil || !strings.Contains(err.Error(), `"a": there are two`) {
		t.Errorf("two of a name: %v", err)
	}
}

// Each node of a cluster tells the addresses of all nodes for the listener through which the client came. A node whose settings
// do not have the listener yet is named with its first address.
func TestListenersOfACluster(t *testing.T) {
	all := &several{T: t, nodes: storetest.NewCluster(3), servers: map[int32]*Server{}}
	want := []map[int32]string{{}, {}} // by listener
	for id := int32(1); id <= 3; id++ {
		at, free := topic.Advertised{Host: fmt.Sprint("inner", id), Port: 9092}, ports.Addrs(t, 2)
		want[0][id], want[1][id] = fmt.Sprintf("inner%d:9092", id), fmt.Sprintf("outer%d:9093", id)
		if id == 3 {
			want[1][id] = want[0][id]
		} else {
			at.Listeners = map[string]string{"internal": want[0][id], "public": want[1][id]}
		}
		server := NewServer(startBroker(t, all.nodes.Store(id), topic.Config{Advertise: at}), Options{Name: "internal", Addr: free[0], Also: []Listener{{Name: "public", Addr: free[1]}}})
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, server.Stop) })
		all.servers[id] = server
	}
	for id, server := range all.servers {
		for i := range want {
			p := dialListener(t, server, i, nil)
			all.await(fmt.Sprintf("node %d tells the addresses of listener %d", id, i), func() bool { return maps.Equal(told(p), want[i]) })
		}
	}
	all.nodes.Kill(2)
	request := kmsg.NewPtrDescribeClusterRequest()
	request.IncludeFencedBrokers = true
	p := dialListener(t, all.servers[1], 1, nil)
	all.await("the dead node has the address of the listener", func() bool {
		for _, b := range ask[*kmsg.DescribeClusterResponse](p, 2, request).Brokers {
			if b.IsFenced {
				return b.NodeID == 2 && fmt.Sprintf("%s:%d", b.Host, b.Port) == want[1][2]
			}
		}
		return false
	})
}
