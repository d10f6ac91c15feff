package kafka

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// secureOptions are those of a server that asks clients for certificates.
func secureOptions(t *testing.T, authority *certtest.Authority) Options {
	t.Helper()
	files := authority.Issue("server")
	clients, err := renew.LoadClients(renew.ClientOptions{CAFile: authority.File})
	if err != nil {
		t.Fatal(err)
	}
	secure, err := renew.ServerTLS(files.Cert, files.Key, clients, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Options{TLS: secure}
}

// Over TLS clients produce and fetch, answers of many records of TLS too; without a certificate of the
// authority, and without TLS, they get nothing.
func TestTLS(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	create(t, b, "orders", 1)
	s := start(t, b, secureOptions(t, ours))
	c := client(t, s, kgo.DialTLSConfig(ours.Client(ours.Issue("client"))), kgo.ConsumeTopics("orders"), kgo.DefaultProduceTopic("orders"),
		kgo.ProducerBatchMaxBytes(900_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	const count, size = 8, 800_000
	for range count {
		if err := c.ProduceSync(t.Context(), kgo.SliceRecord(make([]byte, size))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < count; {
		fetches := c.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if got++; len(r.Value) != size {
				t.Errorf("%d bytes, want %d", len(r.Value), size)
			}
		})
	}
	for name, config := range map[string]*tls.Config{
		"no certificate": ours.Client(), "an unknown server": others.Client(), "no TLS": nil,
	} {
		refused := client(t, s, kgo.DialTLSConfig(config), kgo.RequestRetries(0))
		if err := refused.Ping(t.Context()); err == nil {
			t.Errorf("%s: the server answered", name)
		}
	}
}

// overPipe runs a test in virtual time with the end of a connection to a server that has TLS.
func overPipe(t *testing.T, authority *certtest.Authority, test func(t *testing.T, conn net.Conn, c *connection)) {
	t.Helper()
	options := secureOptions(t, authority)
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(nil, options)
		here, there := net.Pipe()
		c := newConnection(t.Context(), s, here, s.options.listeners()[0])
		var ends sync.WaitGroup
		ends.Go(func() { _ = c.read(t.Context()) })
		test(t, there, c)
		c.cancel()
		ends.Wait()
	})
}

// A client that is silent, or sends a part of a handshake, is gone after ten seconds.
func TestSilentHandshakes(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "a part": "\x16\x03\x01\x01\x00"} {
		overPipe(t, certtest.New(t), func(t *testing.T, conn net.Conn, _ *connection) {
			began := time.Now()
			_, _ = io.WriteString(conn, sent)
			_, err := conn.Read(make([]byte, 1))
			if took := time.Since(began); !errors.Is(err, io.EOF) || took != handshakeTime {
				t.Errorf("%s: %v after %v, want the end after %v", name, err, took, handshakeTime)
			}
		})
	}
}

// A client that pauses while it receives an answer over TLS gets all of it, if nobody waits for memory;
// one that takes longer than the write timeout does not.
func TestPausesOverTLS(t *testing.T) {
	authority := certtest.New(t)
	config := authority.Client(authority.Issue("client"))
	config.ServerName = "localhost"
	overPipe(t, authority, func(t *testing.T, conn net.Conn, c *connection) {
		client := tls.Client(conn, config)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 100_000)
		for _, pause := range []time.Duration{3 * stallTime, c.server.options.WriteTimeout + 1} {
			var sent error
			var sender sync.WaitGroup
			sender.Go(func() { sent = c.writeAll(net.Buffers{answer}) })
			time.Sleep(pause)
			if pause > c.server.options.WriteTimeout {
				sender.Wait()
				if sent == nil {
					t.Error("an answer that is not received is sent for ever")
				}
				return
			}
			if _, err := io.ReadFull(client, answer); err != nil {
				t.Error(err)
			}
			if sender.Wait(); sent != nil {
				t.Errorf("after a pause of %v: %v", pause, sent)
			}
		}
	})
}
