package remote

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/trust"
)

// Flags are the flags of every command that uses a server.
type Flags struct{ JSON bool }

func (f *Flags) Add(command *cobra.Command) {
	command.Flags().String(profile.Server, "", "`URL` of the server (default $"+profile.ServerVariable+", or "+profile.DefaultServer+")")
	command.Flags().BoolVar(&f.JSON, "json", false, "print JSON")
	trust.Add(command)
}

// Server returns the URL of the server that a command uses, and the client with which it makes requests.
func Server(command *cobra.Command) (base string, through *http.Client, err error) {
	of, err := profile.Of(command)
	if err != nil {
		return "", nil, err
	}
	if base, err = of.ServerURL(); err != nil {
		return "", nil, err
	}
	through, err = clientOf(of)
	return base, through, err
}

func clientOf(of profile.Connection) (*http.Client, error) {
	secure, err := trust.TLS(of)
	if err != nil {
		return nil, err
	}
	token, err := trust.Token(of)
	if err != nil {
		return nil, err
	}
	client := &http.Client{}
	if secure != nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = secure
		client.Transport = transport
	}
	if token != "" {
		client.Transport = showing{token, cmp.Or[http.RoundTripper](client.Transport, http.DefaultTransport)}
		client.CheckRedirect = sameServer
	}
	return client, nil
}

// showing shows a token with each request that shows nothing else, such as the ticket of a visitor.
type showing struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s showing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	return s.next.RoundTrip(r)
}

// sameServer keeps a token from other servers.
func sameServer(r *http.Request, via []*http.Request) error {
	if first := via[0].URL; r.URL.Scheme != first.Scheme || r.URL.Host != first.Host || len(via) >= maxRedirects {
		return fmt.Errorf("the server refers to %s, which does not get the token: name that server with --server", r.URL.Host)
	}
	return nil
}

// maxRedirects bounds the redirects of a request with a token.
const maxRedirects = 10

// notEstablished is the text of net/http for an HTTP/2 connection that has ended before its first answer.
const notEstablished = "http2: client conn could not be established"

// Unreachable returns an error that says what to do if nothing answers at a URL, or not to this
// client, or nil if something does.
func Unreachable(base string, err error) error {
	var dial *net.OpError
	var name *net.DNSError
	distrust := Distrust(base, err)
	switch {
	case distrust != nil:
		return distrust
	case errors.As(err, &name):
		err = name
	case errors.As(err, &dial) && dial.Op == "dial":
		err = exit.Innermost(dial.Err)
	default:
		return nil
	}
	return fmt.Errorf("no server at %s (%w): start one with \"sluice serve\", or name another with --server", base, err)
}

// Distrust returns an error that says what to do if the client does not trust the server's
// certificate, or the server not the client's; else nil. The latter may show as a connection that is
// closed during the request.
func Distrust(base string, err error) error {
	var untrusted *tls.CertificateVerificationError
	var alert *net.OpError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of %s is not trusted (%w): name its authority with --ca", base, untrusted.Err)
	case errors.As(err, &alert) && alert.Op == "remote error":
		return fmt.Errorf("%s refuses the connection (%w): show a certificate that it knows, with --client-cert and --client-key", base, alert.Err)
	case err != nil && strings.HasPrefix(base, "https:") &&
		(errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || strings.Contains(err.Error(), notEstablished)):
		return fmt.Errorf("%s has closed the connection (%w): if it asks for certificates, show one with --client-cert and --client-key", base, err)
	}
	return nil
}
