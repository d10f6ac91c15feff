package netlab

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Proxy forwards TCP connections to one address. A change of a direction applies to open
// connections too.
type Proxy struct {
	to       int
	target   string
	listener net.Listener
	// nodeOf returns the node that a connection comes from.
	nodeOf func(netip.Addr) int
	ctx    context.Context
	close  context.CancelFunc
	wait   sync.WaitGroup

	mu sync.Mutex
	// changed is closed when the directions change.
	changed chan struct{}
	held    map[Way]bool
	delays  map[Way]time.Duration
}

// Proxy starts to forward from an address of node 0 to a port of a node.
func (n *Net) Proxy(node, port int) (*Proxy, error) {
	p, err := newProxy(netip.AddrPortFrom(n.Addr(0), 0), node, netip.AddrPortFrom(n.Addr(node), uint16(port)), n.node)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for way, blocked := range n.blocked {
		p.Hold(way, blocked)
	}
	n.proxies = append(n.proxies, p)
	return p, nil
}

func newProxy(from netip.AddrPort, to int, target netip.AddrPort, nodeOf func(netip.Addr) int) (*Proxy, error) {
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", from.String())
	if err != nil {
		cancel()
		return nil, err
	}
	p := &Proxy{
		to: to, target: target.String(), listener: listener, nodeOf: nodeOf, ctx: ctx, close: cancel,
		changed: make(chan struct{}), held: map[Way]bool{}, delays: map[Way]time.Duration{},
	}
	p.wait.Go(p.accept)
	return p, nil
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hold holds all data in a direction, until it is called with false.
func (p *Proxy) Hold(way Way, held bool) {
	p.change(func() { p.held[way] = held })
}

// Delay delays the data in a direction; 0 forwards it at once.
func (p *Proxy) Delay(way Way, delay time.Duration) {
	p.change(func() { p.delays[way] = delay })
}

func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.close()
	_ = p.listener.Close()
	p.wait.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection, both ways, until one side ends it.
func (p *Proxy) serve(client net.Conn) {
	ctx, end := context.WithCancel(p.ctx)
	defer end()
	defer hangUp(client)
	from := 0
	if remote, is := client.RemoteAddr().(*net.TCPAddr); is {
		from = p.nodeOf(remote.AddrPort().Addr())
	}
	out, back := Way{from, p.to}, Way{p.to, from}
	if !p.pass(ctx, out, time.Now()) || !p.pass(ctx, back, time.Now()) { // the handshake needs both
		return
	}
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer hangUp(server)
	stop := context.AfterFunc(ctx, func() {
		hangUp(client)
		hangUp(server)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.forward(ctx, end, client, server, out) })
	both.Go(func() { p.forward(ctx, end, server, client, back) })
	both.Wait()
}

// hangUp closes a connection and ignores the error.
func hangUp(conn net.Conn) { _ = conn.Close() }

// piece is the data of one read.
type piece struct {
	data []byte
	at   time.Time
}

// pieces is how many pieces of at most pieceBytes are in flight in one direction; then the sender
// waits.
const (
	pieces     = 256
	pieceBytes = 64 << 10
)

// forward copies one direction, each piece when its direction lets it pass. The end of the data
// closes the connection, after all earlier data.
func (p *Proxy) forward(ctx context.Context, end func(), from io.Reader, to io.Writer, way Way) {
	defer end()
	queue := make(chan piece, pieces)
	p.wait.Go(func() {
		defer close(queue)
		for {
			data := make([]byte, pieceBytes)
			n, err := from.Read(data)
			if n > 0 {
				select {
				case queue <- piece{data[:n], time.Now()}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for next := range queue {
		if !p.pass(ctx, way, next.at) {
			return
		}
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
	p.pass(ctx, way, time.Now())
}

// pass returns when a direction lets through data that was sent at a time.
func (p *Proxy) pass(ctx context.Context, way Way, sent time.Time) bool {
	for {
		p.mu.Lock()
		held, due, changed := p.held[way], sent.Add(p.delays[way]), p.changed
		p.mu.Unlock()
		left := time.Until(due)
		if !held && left <= 0 {
			return ctx.Err() == nil
		}
		var timer <-chan time.Time
		if !held {
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
