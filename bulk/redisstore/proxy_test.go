//go:build redis

package redisstore

import (
	"context"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy forwards between a store and its server. It can lose an answer and its connection,
// after the server has executed the command, and can switch to another server.
type proxy struct {
	t        testing.TB
	listener net.Listener
	group    sync.WaitGroup

	carried atomic.Int64 // bytes, both ways
	delay   atomic.Int64 // of each answer, in nanoseconds

	mu     sync.Mutex
	to     string
	pairs  map[net.Conn]net.Conn
	losing int // the number of the answer that is lost, from 1; 0 is none
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: listener, to: to, pairs: map[net.Conn]net.Conn{}}
	p.group.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close() // it ends accept
		p.lead("")
		p.group.Wait()
	})
	return p
}

func (p *proxy) url() string {
	return (&url.URL{Scheme: "redis", Host: p.listener.Addr().String()}).String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
		if err != nil {
			_ = client.Close() // like a server that is away
			continue
		}
		p.mu.Lock()
		p.pairs[client] = server
		stale := p.to != to
		p.mu.Unlock()
		if stale {
			p.cut(client, server)
		}
		p.group.Go(func() { p.carry(server, client, false) })
		p.group.Go(func() { p.carry(client, server, true) })
	}
}

// carry copies data from one side to the other until one of them closes.
func (p *proxy) carry(to, from net.Conn, answers bool) {
	defer p.cut(to, from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || answers && p.loses() {
			return
		}
		p.carried.Add(int64(n))
		if delay := p.delay.Load(); answers && delay > 0 {
			<-time.After(time.Duration(delay))
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// loses reports whether this answer is to be lost.
func (p *proxy) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.losing == 0 {
		return false
	}
	p.losing--
	return p.losing == 0
}

func (p *proxy) cut(one, other net.Conn) {
	_, _ = one.Close(), other.Close() // the other direction may have closed them first
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, one)
	delete(p.pairs, other)
}

// lose loses the n-th answer from now on, counted over all connections.
func (p *proxy) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing = n
}

// lost ends what lose began, and reports whether the answer was lost.
func (p *proxy) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.losing == 0
	p.losing = 0
	return came
}

// lead switches the proxy to another server, also for existing connections; "" is none.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	p.to = to
	pairs := p.pairs
	p.pairs = map[net.Conn]net.Conn{}
	p.mu.Unlock()
	for client, server := range pairs {
		_, _ = client.Close(), server.Close() // each of them may have ended
	}
}
