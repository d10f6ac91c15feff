package connlimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/internal/clientnet"
)

// defaultPerClient is how many connections a client may hold where nothing else is set:
// many people may share one address.
const defaultPerClient = 2000

// logEvery is the least time between two lines of the log about refused connections.
const logEvery = time.Minute

// Bounds are how many connections there may be.
type Bounds struct {
	// Total is for all listeners together. Default: see [Descriptors].
	Total int
	// PerClient is for a client: an IPv4 address, or an IPv6 network of 64 bits.
	// Default: 2,000.
	PerClient int
	// Exempt are networks whose connections PerClient does not bound: proxies, each of
	// which brings many clients. Loopback addresses are exempt too.
	Exempt []netip.Prefix
}

// Limiter counts the connections of listeners, and those that are opened for their clients; it
// refuses those beyond its bounds.
type Limiter struct {
	bounds  Bounds
	log     *slog.Logger
	refused *prometheus.CounterVec

	mu      sync.Mutex
	open    int
	clients map[netip.Prefix]int
	logged  time.Time
}

// New returns a limiter that logs refusals.
func New(bounds Bounds, log *slog.Logger) *Limiter {
	if bounds.Total == 0 {
		bounds.Total = Descriptors()
	}
	if bounds.PerClient == 0 {
		bounds.PerClient = defaultPerClient
	}
	return &Limiter{
		bounds: bounds, log: log, clients: map[netip.Prefix]int{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_connections_refused_total", Help: "Connections that were reset at once, by the bound that was reached: total or client.",
		}, []string{"bound"}),
	}
}

// Describe implements prometheus.Collector.
func (l *Limiter) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, to) }

// Collect implements prometheus.Collector.
func (l *Limiter) Collect(to chan<- prometheus.Metric) {
	l.refused.Collect(to)
	l.mu.Lock()
	open := float64(l.open)
	l.mu.Unlock()
	to <- prometheus.MustNewConstMetric(openConnections, prometheus.GaugeValue, open)
}

var openConnections = prometheus.NewDesc("edge_connections_open", "Connections of clients, of all protocols, and those that the gate has opened for them.", nil, nil)

// ErrTooMany: there are as many connections as there may be.
var ErrTooMany = errors.New("there are too many connections")

// Dial returns a function that opens connections to servers on behalf of clients. They count
// in the total, since they take file descriptors too; beyond the bound it returns
// [ErrTooMany].
func (l *Limiter) Dial(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !l.admit(nil, address) {
			return nil, ErrTooMany
		}
		release := sync.OnceFunc(func() { l.release(nil) })
		dialed, err := dialer.DialContext(ctx, network, address)
		if tcp, ok := dialed.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(answerBuffer) // what a client does not read waits here too
			return &conn{tcp, release}, nil
		}
		release()
		return dialed, err
	}
}

// Listen returns a listener whose connections count. A nil limiter bounds nothing.
func (l *Limiter) Listen(listener net.Listener) net.Listener {
	if l == nil {
		return listener
	}
	return &counted{listener, l}
}

type counted struct {
	net.Listener
	limiter *Limiter
}

// Accept implements net.Listener. It resets connections beyond a bound, and goes on.
func (c *counted) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		tcp, ok := accepted.(*net.TCPConn)
		if err != nil || !ok {
			return accepted, err
		}
		if leave, ok := c.limiter.Enter(tcp.RemoteAddr()); ok {
			_ = tcp.SetWriteBuffer(answerBuffer)
			return &conn{tcp, leave}, nil
		}
		_ = tcp.SetLinger(0) // a reset: an orderly end looks like an answer to some clients
		_ = tcp.Close()
	}
}

// Enter counts a connection of a TCP client until leave is called, unless a bound is reached.
func (l *Limiter) Enter(from net.Addr) (leave func(), ok bool) {
	networks := l.networks(from)
	if !l.admit(networks, from.String()) {
		return nil, false
	}
	return sync.OnceFunc(func() { l.release(networks) }), true
}

// networks returns those whose bounds a connection counts for, the client's first.
func (l *Limiter) networks(address net.Addr) []netip.Prefix {
	ip := address.(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	exempt := func(network netip.Prefix) bool { return network.Contains(ip) }
	if ip.IsLoopback() || slices.ContainsFunc(l.bounds.Exempt, exempt) {
		return nil
	}
	return clientnet.Networks(ip)
}

// admit counts a connection, unless a bound is reached.
func (l *Limiter) admit(from []netip.Prefix, address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	bound := ""
	if l.open >= l.bounds.Total {
		bound = "total"
	}
	for i, network := range from {
		most := l.bounds.PerClient
		if i > 0 {
			most *= clientnet.WideFactor
		}
		if l.clients[network] >= most {
			bound = "client"
		}
	}
	if bound != "" {
		l.refuse(bound, address)
		return false
	}
	l.open++
	for _, network := range from {
		l.clients[network]++
	}
	return true
}

func (l *Limiter) refuse(bound, address string) {
	l.refused.WithLabelValues(bound).Inc()
	if now := time.Now(); now.Sub(l.logged) >= logEvery {
		l.logged = now
		l.log.Warn("connections are refused: there are too many", "bound", bound, "open", l.open,
			"total", l.bounds.Total, "per_client", l.bounds.PerClient, "of", address)
	}
}

func (l *Limiter) release(from []netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	for _, network := range from {
		if l.clients[network]--; l.clients[network] == 0 {
			delete(l.clients, network)
		}
	}
}
