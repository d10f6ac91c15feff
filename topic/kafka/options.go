package kafka

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// Options holds the settings of a [Server]. The zero value of each field means
// its default.
type Options struct {
	// Name is the name of the listener at Addr, for servers with several. Default: it has none.
	Name string
	// Addr is where the server listens. Default "127.0.0.1:9092"; port 0 takes
	// a free one, see [Server.Addr].
	Addr string
	// Advertise is the host and port that clients use. Default: the address that a client has
	// connected to.
	Advertise string
	// Also are further listeners, for the same topics. Default: none.
	Also []Listener
	// Bound returns the listener whose connections are bounded. Default: half of the process's
	// open files in all, and 2,000 of one client.
	Bound func(net.Listener) net.Listener
	// TLS enables TLS at Addr, with its certificates. Default nil: no TLS.
	TLS *tls.Config
	// CheckCertificate returns why the certificate of a connection's client is not good any more; nil if it is, or there
	// is none. Such connections end within a second. Default nil: a certificate is good as long as its connection.
	CheckCertificate func(*tls.ConnectionState) error
	// Accounts has the accounts of clients, which must then authenticate. Default nil: there are none,
	// and all clients may do everything.
	Accounts auth.Accounts
	// Trail gets refusals, and the requests that it follows. Default nil: nothing is recorded.
	Trail auth.Trail
	// MaxRequestBytes is the largest request; a connection that announces a
	// larger one is closed. Default 100 MiB.
	MaxRequestBytes int
	// MaxInFlight is how many requests of one connection may be without an
	// answer; the server reads no more until one is answered. Default 64.
	MaxInFlight int
	// RequestMemory bounds the bytes of all requests that are being read or handled; further
	// requests wait to be read. Default 256 MiB; at least twice MaxRequestBytes.
	RequestMemory int64
	// FetchMemory bounds the bytes of all answers that are being built or sent, except the first
	// 32 KiB of each, one batch of records in each, and two large answers to other requests. When it
	// runs low, answers with records become smaller, and others wait. Default 256 MiB.
	FetchMemory int64
	// MaxAnswerBytes bounds one answer without records. A topic, group or partition that does not fit
	// has the error POLICY_VIOLATION in its place. Default 64 MiB.
	MaxAnswerBytes int64
	// MaxFetchBytes bounds the records in one answer, whatever the client asks for, except for one
	// batch. Default 55 MiB.
	MaxFetchBytes int
	// ReadTimeout is how long the rest of a request may take to arrive once it
	// has begun. While others wait for RequestMemory, a request of which less
	// than 64 KiB arrives within a second is cut off sooner. Default 30 s.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client may take to receive each MiB of an
	// answer. While others wait for FetchMemory, one that receives less than
	// 64 KiB within a second is cut off sooner. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection without open requests may be silent. Default 10 minutes.
	IdleTimeout time.Duration
	// TracerProvider makes spans of requests that move records, end transactions or join groups. Default nil: none.
	TracerProvider trace.TracerProvider
	// Logger gets the server's messages. Default: none.
	Logger *slog.Logger
}

// Listener is an address to serve clients at. Those who come through it are told its addresses: those that the nodes of
// the cluster advertise under its name.
type Listener struct {
	// Name is what the listeners at other nodes that lead to the same clients are called too.
	Name string
	// Addr, Advertise and TLS are as in [Options]; Addr has no default.
	Addr, Advertise string
	TLS             *tls.Config
}

// listeners returns all listeners.
func (o *Options) listeners() []*Listener {
	all := []*Listener{{Name: o.Name, Addr: o.Addr, Advertise: o.Advertise, TLS: o.TLS}}
	for i := range o.Also {
		all = append(all, &o.Also[i])
	}
	return all
}

// WithDefaults returns the options with every unset field at its default.
func (o Options) WithDefaults() Options {
	orDefault(&o.Addr, "127.0.0.1:9092")
	orDefault(&o.MaxRequestBytes, 100<<20)
	orDefault(&o.MaxInFlight, 64)
	orDefault(&o.RequestMemory, max(256<<20, 2*int64(o.MaxRequestBytes)))
	orDefault(&o.FetchMemory, 256<<20)
	orDefault(&o.MaxAnswerBytes, 64<<20)
	orDefault(&o.MaxFetchBytes, 55<<20)
	orDefault(&o.ReadTimeout, 30*time.Second)
	orDefault(&o.WriteTimeout, 30*time.Second)
	orDefault(&o.IdleTimeout, 10*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Bound == nil {
		o.Bound = connlimit.New(connlimit.Bounds{}, o.Logger).Listen
	}
	return o
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error that names the field that is out of range.
func (o Options) Validate() error {
	o = o.WithDefaults()
	switch {
	case o.MaxInFlight < 1:
		return fmt.Errorf("max in flight %d: want at least 1", o.MaxInFlight)
	case o.MaxRequestBytes < minRequestBytes:
		return fmt.Errorf("max request bytes %d: want at least %d", o.MaxRequestBytes, minRequestBytes)
	case o.RequestMemory < 2*int64(o.MaxRequestBytes):
		return fmt.Errorf("request memory %d: want at least twice max request bytes, %d", o.RequestMemory, o.MaxRequestBytes)
	case o.MaxFetchBytes < 1 || o.MaxFetchBytes > maxFrame || o.MaxAnswerBytes > maxFrame:
		return fmt.Errorf("max fetch bytes %d, max answer bytes %d: want 1 to %d", o.MaxFetchBytes, o.MaxAnswerBytes, maxFrame)
	case o.MaxAnswerBytes < smallAnswer || o.FetchMemory < 1:
		return fmt.Errorf("max answer bytes %d: want at least %d; fetch memory %d: want at least 1", o.MaxAnswerBytes, smallAnswer, o.FetchMemory)
	case o.ReadTimeout < 0 || o.WriteTimeout < 0 || o.IdleTimeout < 0:
		return fmt.Errorf("read timeout %v, write timeout %v, idle timeout %v: want more than 0", o.ReadTimeout, o.WriteTimeout, o.IdleTimeout)
	}
	named := map[string]bool{}
	for _, listener := range o.listeners() {
		if named[listener.Name] {
			return fmt.Errorf("listener %q: there are two: want a name of its own for each", listener.Name)
		}
		named[listener.Name] = true
		if listener.Advertise == "" {
			continue
		}
		if _, _, err := splitAddress(listener.Advertise); err != nil {
			return fmt.Errorf("advertise: %w", err)
		}
	}
	return nil
}

// splitAddress returns the parts of "host:port".
func splitAddress(address string) (host string, port int32, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 || host == "" {
		return "", 0, fmt.Errorf("address %q: want a host and a port from 1 to 65535", address)
	}
	return host, int32(number), nil
}
