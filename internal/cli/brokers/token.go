package brokers

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/trust"
)

// login returns how a connection authenticates to brokers: none without a token.
func login(of profile.Connection, secure bool) ([]sasl.Mechanism, error) {
	token, err := trust.Token(of)
	if token == "" || err != nil {
		return nil, err
	}
	return []sasl.Mechanism{tokenLogin{plain.Auth{User: "token", Pass: token}.AsMechanism(), secure}}, nil
}

// tokenLogin sends a token over TLS, or to this machine, and nowhere else.
type tokenLogin struct {
	sasl.Mechanism
	secure bool
}

// Authenticate implements sasl.Mechanism.
func (l tokenLogin) Authenticate(ctx context.Context, address string) (sasl.Session, []byte, error) {
	if !l.secure && !loopback(address) {
		return nil, nil, exit.Usage("a token would cross the network to %s in the clear: want --tls or --ca", address)
	}
	return l.Mechanism.Authenticate(ctx, address)
}

// loopback reports whether an address is one of this machine.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, wrong := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || wrong == nil && ip.IsLoopback())
}

// refused returns what to do if brokers do not accept the first request for want of a token; nil: the
// error is another.
func refused(err error) error {
	const how = "(--token-file, or $" + trust.TokenVariable + ")"
	switch {
	case exit.IsUsage(err):
		return err
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return errors.New("the broker does not accept the token: it is unknown, or has expired " + how)
	case errors.Is(err, kerr.IllegalSaslState):
		return errors.New("the broker has no accounts: use it without a token")
	}
	if _, closed := errors.AsType[*kgo.ErrFirstReadEOF](err); closed {
		return errors.New("the broker closed the connection: if it has accounts, it wants a token " + how + ", and with TLS it wants --tls or --ca")
	}
	return nil
}
