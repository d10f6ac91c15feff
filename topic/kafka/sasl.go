package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// Bounds before it is known who a client is.
const (
	// loginTime is how long a client has until it has authenticated, the handshake of TLS included.
	loginTime = 10 * time.Second
	// loginBytes is the longest request until then.
	loginBytes = 64 << 10
	// strangersMax bounds the connections that have not authenticated, and strangersPerClient those of
	// one client, as in package connlimit; a further one is reset.
	strangersMax       = 1000
	strangersPerClient = 100
	// failedLogin is the pause before a failed authentication is answered; then the connection ends.
	failedLogin = 100 * time.Millisecond
	// checkLogins is how often the server looks for connections whose accounts have ended.
	checkLogins = time.Second
)

// login is the authentication of a connection that is under way. Only the reader uses it.
type login struct {
	// Login has no mechanism until the client chooses one by SaslHandshake.
	auth.Login
	// bare means that the messages follow without headers of requests.
	bare bool
}

// SaslHandshake: versions 0 to 1.
//
// Chooses the mechanism of the authentication that follows. PLAIN and OAUTHBEARER, which send the
// secret, are offered over TLS and on loopback addresses only. Without accounts the answer is ILLEGAL_SASL_STATE.
//
//   - 1: SaslAuthenticate follows. In version 0 the tokens follow, each with its length before it.
func (s *Server) saslHandshake(c *call, r *kmsg.SASLHandshakeRequest) answer {
	response := r.ResponseKind().(*kmsg.SASLHandshakeResponse)
	response.SupportedMechanisms = c.session.mechanisms()
	switch {
	case len(response.SupportedMechanisms) == 0:
		response.ErrorCode = kerr.IllegalSaslState.Code
	case !slices.Contains(response.SupportedMechanisms, r.Mechanism):
		response.ErrorCode = kerr.UnsupportedSaslMechanism.Code
	default:
		c.session.login = login{auth.Login{Mechanism: r.Mechanism}, r.Version == 0}
	}
	return respond(response)
}

// mechanisms returns those that the connection may use.
func (c *connection) mechanisms() []string {
	if c.server.options.Accounts == nil {
		return nil
	}
	offered := []string{auth.ScramSHA256, auth.ScramSHA512}
	if ip := net.ParseIP(c.host); c.secure != nil || ip != nil && ip.IsLoopback() {
		offered = append(offered, auth.Plain, auth.OAuthBearer)
	}
	return offered
}

// SaslAuthenticate: versions 0 to 2.
//
// Carries the messages of the mechanism. After a failure the server waits a tenth of a second, answers
// SASL_AUTHENTICATION_FAILED with the reason, and closes the connection. A client that has authenticated
// may do so again on the same connection, as the same account (KIP-368).
//
//   - 1: the lifetime of the session, until the account expires; 0: it does not.
func (s *Server) saslAuthenticate(c *call, r *kmsg.SASLAuthenticateRequest) answer {
	response := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	if c.session.login.Mechanism == "" {
		response.ErrorCode = kerr.IllegalSaslState.Code
		response.ErrorMessage = message(errNoHandshake)
		return respond(response)
	}
	reply, principal, err := c.session.authenticate(r.SASLAuthBytes)
	if err != nil {
		if missed, due := s.warned.due(keySASLAuthenticate); due {
			s.log.Warn("kafka client is refused: it does not authenticate", "from", c.session.conn.RemoteAddr().String(),
				"client", c.client, "error", err, "not_logged_before", missed)
		}
		c.session.recordStranger(keySASLAuthenticate)
		c.session.stopping.Store(true) // no more requests; the sender ends the connection
		response.ErrorCode, response.ErrorMessage = kerr.SaslAuthenticationFailed.Code, message(err)
		return func(ctx context.Context) kmsg.Response {
			select {
			case <-time.After(failedLogin):
			case <-ctx.Done():
			}
			return response
		}
	}
	response.SASLAuthBytes = reply
	if principal != nil && !principal.Expires().IsZero() {
		response.SessionLifetimeMillis = max(1, time.Until(principal.Expires()).Milliseconds())
	}
	return respond(response)
}

// startBare starts a token that follows SaslHandshake version 0: the body of a SaslAuthenticate. A
// failure has no answer.
func (c *connection) startBare(x *exchange, token []byte) {
	x.header = header{key: keySASLAuthenticate, size: len(token)}
	request := kmsg.NewPtrSASLAuthenticateRequest()
	request.SASLAuthBytes = token
	authenticated := c.server.saslAuthenticate(&call{session: c}, request)
	x.answer = func(ctx context.Context) kmsg.Response {
		response := authenticated(ctx).(*kmsg.SASLAuthenticateResponse)
		if response.ErrorCode != 0 {
			return nil
		}
		return &bareResponse{response}
	}
}

// bareResponse is an answer without a header.
type bareResponse struct{ *kmsg.SASLAuthenticateResponse }

func (r *bareResponse) frame() net.Buffers {
	return net.Buffers{binary.BigEndian.AppendUint32(nil, uint32(len(r.SASLAuthBytes))), r.SASLAuthBytes}
}

var (
	errNoHandshake  = errors.New("SaslAuthenticate without SaslHandshake")
	errOtherAccount = errors.New("a connection cannot become that of another account")
)

// authenticate handles one message of a mechanism. The principal is nil until the last one.
func (c *connection) authenticate(message []byte) (reply []byte, principal auth.Principal, err error) {
	reply, principal, err = c.login.Step(c.server.options.Accounts, message)
	if err != nil || principal == nil {
		return reply, nil, err
	}
	if before := c.principal(); before != nil && !c.certified && before.Name() != principal.Name() {
		return nil, nil, errOtherAccount
	}
	c.login = login{}
	c.become(principal, false)
	return reply, principal, nil
}

// become makes the connection that of an account, which a certificate or SASL has proved.
func (c *connection) become(principal auth.Principal, certified bool) {
	c.certified = certified
	c.known.Store(&principal)
	c.unknown.Stop()
	c.leave()
}

// certify makes the connection that of the account of the client's certificate, if it has shown one. If
// that is nobody's, the client can still authenticate by SASL.
func (c *connection) certify(state *tls.ConnectionState) {
	accounts := c.server.options.Accounts
	if accounts == nil || len(state.VerifiedChains) == 0 {
		return
	}
	principal, err := accounts.Certificate(state.VerifiedChains[0][0])
	if err == nil {
		c.become(principal, true)
		return
	}
	if missed, due := c.server.warned.due(keySASLHandshake); due {
		c.server.log.Warn("kafka client's certificate is of no account: it has to authenticate by SASL", "from", c.conn.RemoteAddr().String(),
			"error", err, "not_logged_before", missed)
	}
}

// principal returns who the client is; nil if it has not authenticated, or there are no accounts.
func (c *connection) principal() auth.Principal {
	if known := c.known.Load(); known != nil {
		return *known
	}
	return nil
}

// mustAuthenticate reports whether the client has to authenticate first.
func (c *connection) mustAuthenticate() bool {
	return c.server.options.Accounts != nil && c.known.Load() == nil
}

// enter counts a connection among those that have not authenticated. It returns false if there are too
// many of them.
func (c *connection) enter() (ok bool) {
	if c.server.options.Accounts == nil {
		return true
	}
	if c.leave, ok = c.server.strangers.Enter(c.conn.RemoteAddr()); ok {
		context.AfterFunc(c.ctx, c.leave)
	}
	return ok
}

// checkKnown returns an error for a request that only a client that has authenticated may send. It has
// no answer: such a client believes that the server has no accounts.
func (c *connection) checkKnown(key int16) error {
	if !c.mustAuthenticate() || key == keyAPIVersions || key == keySASLHandshake || key == keySASLAuthenticate {
		return nil
	}
	return fmt.Errorf("%s before authentication: want SASL", requestName(key))
}

// checkCertificate returns why the certificate of a connection is not good any more.
func (s *Server) checkCertificate(c *connection) error {
	shown := c.shown.Load()
	if s.options.CheckCertificate == nil || shown == nil {
		return nil
	}
	return s.options.CheckCertificate(shown)
}

// endLogins ends the connections whose accounts or certificates were revoked or have expired.
func (s *Server) endLogins(ctx context.Context) error {
	look := time.NewTicker(checkLogins)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		for c := range s.connections {
			if who := c.principal(); who != nil && !who.Valid() {
				s.log.Info("kafka connection ends: its account was revoked or has expired", "from", c.conn.RemoteAddr().String(), "account", who.Name())
				c.cancel()
			} else if err := s.checkCertificate(c); err != nil {
				s.log.Info("kafka connection ends", "from", c.conn.RemoteAddr().String(), "error", err)
				c.cancel()
			}
		}
		s.mu.Unlock()
	}
}
