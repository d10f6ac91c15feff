package redisstore

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a store and its server. It can lose an answer with its connection,
// after the server has done what was asked, and lead elsewhere.
type proxy struct {
	t        testing.TB
	listener net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex
	to     string
	pairs  map[net.Conn]net.Conn
	losing int // the answer that is lost, counted from 1; 0 is none
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
			_ = client.Close() // as of a server that is not there
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

// carry copies what one side says to the other until one of them ends.
func (p *proxy) carry(to, from net.Conn, answers bool) {
	defer p.cut(to, from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || answers && p.loses() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// loses tells whether this answer is the one that is lost.
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
	_, _ = one.Close(), other.Close() // the other direction may have come first
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, one)
	delete(p.pairs, other)
}

// lose makes the n-th answer from now on be lost, counted over all connections.
func (p *proxy) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing = n
}

// lost ends what lose began, and tells whether the answer came that was to be lost.
func (p *proxy) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.losing == 0
	p.losing = 0
	return came
}

// lead makes the proxy lead to another server, for those too that are connected; to none
// with "".
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
