package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// slowKinds are the ways in which a client of the gate takes its time, once it is connected.
var slowKinds = map[string]func(ctx context.Context, conn net.Conn) error{
	"headers": func(ctx context.Context, conn net.Conn) error {
		return drip(ctx, conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	},
	"body": func(ctx context.Context, conn net.Conn) error {
		return drip(ctx, conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
	},
	"reading": func(ctx context.Context, conn net.Conn) error {
		if _, err := io.WriteString(conn, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(40 * time.Second): // who does not read does not see the end either
		}
		return io.EOF
	},
	"handshake": func(ctx context.Context, conn net.Conn) error {
		return drip(ctx, conn, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	},
}

// drip sends a text, and then a byte every few seconds until it fails.
func drip(ctx context.Context, conn net.Conn, text string) error {
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
		text = "x"
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Second):
		}
	}
}

// A crowd of slow clients, who come again whenever they are cut, keeps no visitor waiting. The test
// logs how long a visitor takes, alone and beside them.
func TestSlowCrowd(t *testing.T) {
	size := 300
	if long() {
		size = 1_000
	}
	for kind, act := range slowKinds {
		t.Run(kind, func(t *testing.T) {
			var large atomic.Int64
			origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/large" {
					large.Add(1)
					_, _ = w.Write(make([]byte, 1<<20))
				}
			}))
			t.Cleanup(origin.Close) // when the crowd has left
			s, front := newGate(t, origin.URL, append([]string{"--capacity", "1", "--bypass", "/large"}, secured(t, kind == "handshake")...)...)
			s.start()
			address := strings.TrimPrefix(front, "http://")
			if kind == "handshake" {
				front = "https://" + address
			}
			alone := visits(t, front)
			crowd := newSlowCrowd(t, address, size, act)
			until.True(t, "the crowd is there", func() bool { return crowd.connected.Load() >= int64(size)*9/10 })
			beside := visits(t, front)
			t.Logf("%d clients, slow with their %s, who came %d times: a visitor's p50 and p99 are %v and %v, alone %v and %v",
				size, kind, crowd.came.Load(), quantile(beside, 50), quantile(beside, 99), quantile(alone, 50), quantile(alone, 99))
			if kind == "reading" && large.Load() == 0 {
				t.Error("nobody was sent what is not read")
			}
		})
	}
}

// secured returns the arguments for a gate with TLS.
func secured(t *testing.T, yes bool) []string {
	t.Helper()
	if !yes {
		return nil
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	own := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})))
	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	return []string{"--tls-cert", certFile, "--tls-key", keyFile}
}

// visits opens the waiting page 200 times, each over a connection of its own, and returns how
// long each took. All must be answered.
func visits(t *testing.T, front string) (times []time.Duration) {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	for range 200 {
		began := time.Now()
		response, err := client.Get(front + "/checkout")
		if err != nil {
			t.Fatalf("visit %d: %v", len(times), err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("visit %d: %s, %v", len(times), response.Status, err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[len(sorted)*percent/100].Round(10 * time.Microsecond)
}

// slowCrowd counts the clients of a crowd that are connected, and how often they came.
type slowCrowd struct{ connected, came atomic.Int64 }

// newSlowCrowd starts clients, each of which acts again and again until the test ends.
func newSlowCrowd(t *testing.T, address string, size int, act func(context.Context, net.Conn) error) *slowCrowd {
	ctx, cancel := context.WithCancel(context.Background())
	c, clients := &slowCrowd{}, sync.WaitGroup{}
	t.Cleanup(func() {
		cancel()
		clients.Wait()
	})
	for i := range size {
		// Addresses of their own, since one has too few ports.
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(i%200+1))}}
		clients.Go(func() {
			for ctx.Err() == nil {
				c.come(ctx, dialer, address, act)
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(2 * time.Second)):
				}
			}
		})
	}
	return c
}

func (c *slowCrowd) come(ctx context.Context, dialer *net.Dialer, address string, act func(context.Context, net.Conn) error) {
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	c.came.Add(1)
	c.connected.Add(1)
	defer c.connected.Add(-1)
	if conn, ok := conn.(*net.TCPConn); ok {
		_ = conn.SetReadBuffer(4096)
	}
	_ = act(ctx, conn)
}
