package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// Broker is one of the compared brokers, with its settings.
type Broker struct {
	// Name is the broker and its durability.
	Name string
	// Start starts an empty broker as a process of its own.
	Start func(context.Context) (Server, error)
}

// Server is a running broker.
type Server interface {
	// Line creates a topic with the given number of partitions, and connects a producer.
	Line(ctx context.Context, partitions int) (Line, error)
	// Kept returns the broker's own count of the topic's records.
	Kept(ctx context.Context) (int, error)
	// CPU returns the processor time that the broker has used.
	CPU() (time.Duration, error)
	// Stop ends the process and removes its files.
	Stop() error
}

// Line is a producer's connection. Its methods are called by one goroutine.
type Line interface {
	// Send hands a record over, and waits only while too many are unanswered. answered is called
	// once: when the record is as durable as the broker's settings provide, or has failed. The
	// value must not change any more.
	Send(ctx context.Context, partition int, value []byte, answered func(error)) error
	// Flush returns when all sent records are answered.
	Flush(ctx context.Context) error
	// Close ends the connection.
	Close() error
}

// noiseBytes is the size of the random data that values are cut from.
const noiseBytes = 16 << 20

// Values returns a function whose n-th result is the value of the n-th record: random bytes, the
// same for all brokers and in every run. A cut is repeated only after many MiB, so that a batch
// cannot be compressed.
func Values(bytes int) func(n int) []byte {
	noise := make([]byte, noiseBytes)
	_, _ = rand.NewChaCha8([32]byte{'r'}).Read(noise) // never fails
	places := noiseBytes - bytes
	// The step has no factor in common with most sizes, so that later rounds begin elsewhere.
	return func(n int) []byte {
		at := n * (bytes + 1) % places
		return noise[at : at+bytes : at+bytes]
	}
}

// The ports of servers are below the system's own, which any connection may take, and above those of
// the tests, which are in other modules.
const firstPort, portsCount = 32_000, 700

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(portsCount)) } // the last run's connections may linger

// freeAddress returns an address of this host with a free port, which is not given again soon.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	for range portsCount {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+nextPort.Add(1)%portsCount)
		if listener, err := config.Listen(ctx, "tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("no port from %d to %d is free", firstPort, firstPort+portsCount-1)
}

// listens returns a check that connections are accepted at an address.
func listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: time.Second}
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
}

// checkKept returns an error unless the broker has exactly the acknowledged records.
func checkKept(ctx context.Context, server Server, acknowledged int) error {
	kept, err := server.Kept(ctx)
	if err != nil {
		return err
	}
	if kept != acknowledged {
		return fmt.Errorf("%d records acknowledged, but it has %d", acknowledged, kept)
	}
	return nil
}
