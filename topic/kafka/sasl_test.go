package kafka

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"errors"
	"hash"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
	saslscram "github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/storetest"
)

// account is a Principal of tests. Its secret is its name with "-secret" appended.
type account struct {
	of      *accounts
	name    string
	expires time.Time
	may     func(request int16, of auth.Resource, name string) bool // nil: everything
	meter   auth.Meter                                              // nil: no quota
}

func (a *account) Name() string       { return a.name }
func (a *account) Owner() string      { return a.name }
func (a *account) Expires() time.Time { return a.expires }

func (a *account) Meter(string, string) auth.Meter { return a.meter }

func (a *account) Valid() bool {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	return a.of.byName[a.name] == a && (a.expires.IsZero() || time.Now().Before(a.expires))
}

func (a *account) May(_ string, request int16, of auth.Resource, name string) bool {
	return a.may == nil || a.may(request, of, name)
}

// accounts are Accounts in memory.
type accounts struct {
	auth.Manager
	mu     sync.Mutex
	byName map[string]*account
}

func newAccounts(names ...string) *accounts {
	all := &accounts{Manager: &manager{}, byName: map[string]*account{}}
	for _, name := range names {
		all.add(&account{name: name})
	}
	return all
}

func (a *accounts) add(who *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	who.of, a.byName[who.name] = a, who
}

// Certificate implements auth.Accounts: the common name is that of the account.
func (a *accounts) Certificate(shown *x509.Certificate) (auth.Principal, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if who := a.byName[shown.Subject.CommonName]; who != nil {
		return who, nil
	}
	return nil, errors.New("the certificate is of nobody")
}

func (a *accounts) revoke(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byName, name)
}

var (
	errNobody  = errors.New("unknown name or wrong secret")
	errExpired = errors.New("the token has expired")
)

func (a *accounts) named(name string) (auth.Principal, error) {
	a.mu.Lock()
	who := a.byName[name]
	a.mu.Unlock()
	switch {
	case who == nil:
		return nil, errNobody
	case !who.Valid():
		return nil, errExpired
	}
	return who, nil
}

func (a *accounts) Secret(secret string) (auth.Principal, error) {
	a.mu.Lock()
	names := slices.Collect(maps.Keys(a.byName))
	a.mu.Unlock()
	for _, name := range names {
		if secret == name+"-secret" {
			return a.named(name)
		}
	}
	return nil, errNobody
}

func (a *accounts) Scram(mechanism, name string) (auth.Principal, auth.ScramKeys, error) {
	salt, hash := []byte("salt of "+name), hashes[mechanism]
	password := name + "-secret"
	who, err := a.named(name)
	if errors.Is(err, errNobody) {
		password = "nobody's"
	}
	salted, failed := pbkdf2.Key(hash, password, salt, 4096, hash().Size())
	if failed != nil {
		panic(failed)
	}
	sign := func(text string) []byte {
		mac := hmac.New(hash, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := hash()
	stored.Write(sign("Client Key"))
	return who, auth.ScramKeys{Salt: salt, Iterations: 4096, StoredKey: stored.Sum(nil), ServerKey: sign("Server Key")}, err
}

var hashes = map[string]func() hash.Hash{auth.ScramSHA256: sha256.New, auth.ScramSHA512: sha512.New}

// mechanismsOf returns all mechanisms for a name and a secret.
func mechanismsOf(name, secret string) map[string]sasl.Mechanism {
	proof := saslscram.Auth{User: name, Pass: secret}
	return map[string]sasl.Mechanism{
		auth.Plain: saslplain.Auth{User: name, Pass: secret}.AsMechanism(), auth.ScramSHA256: proof.AsSha256Mechanism(), auth.ScramSHA512: proof.AsSha512Mechanism(),
	}
}

// A client that knows a secret is served by each mechanism, with TLS and without; others learn why not.
func TestSASL(t *testing.T) {
	authority := certtest.New(t)
	for _, secure := range []bool{false, true} {
		all := newAccounts("shop", "a=b,c")
		all.add(&account{name: "old", expires: time.Now().Add(-time.Second)})
		options, with := Options{}, []kgo.Opt(nil)
		if secure {
			options = secureOptions(t, authority)
			with = append(with, kgo.DialTLSConfig(authority.Client(authority.Issue("client"))))
		}
		options.Accounts = all
		s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), options)
		for _, test := range []struct {
			name, secret string
			want         error
		}{
			{name: "shop", secret: "shop-secret"},
			{name: "a=b,c", secret: "a=b,c-secret"},
			{name: "shop", secret: "wrong", want: kerr.SaslAuthenticationFailed},
			{name: "nobody", secret: "nobody-secret", want: kerr.SaslAuthenticationFailed},
			{name: "old", secret: "old-secret", want: kerr.SaslAuthenticationFailed},
		} {
			for name, mechanism := range mechanismsOf(test.name, test.secret) {
				err := client(t, s, append(with, kgo.SASL(mechanism), kgo.RequestRetries(0))...).Ping(t.Context())
				if !errors.Is(err, test.want) {
					t.Errorf("TLS %v, %s, %s with %s: %v, want %v", secure, name, test.name, test.secret, err, test.want)
				}
			}
		}
	}
}

func saslHandshake(mechanism string) *kmsg.SASLHandshakeRequest {
	r := kmsg.NewPtrSASLHandshakeRequest()
	r.Mechanism = mechanism
	return r
}

func saslAuthenticate(message string) *kmsg.SASLAuthenticateRequest {
	r := kmsg.NewPtrSASLAuthenticateRequest()
	r.SASLAuthBytes = []byte(message)
	return r
}

// authenticate makes a peer that of an account.
func (p *peer) authenticate(name string) *kmsg.SASLAuthenticateResponse {
	p.t.Helper()
	wantCode(p.t, "handshake", ask[*kmsg.SASLHandshakeResponse](p, 1, saslHandshake(auth.Plain)).ErrorCode, nil)
	return ask[*kmsg.SASLAuthenticateResponse](p, 2, saslAuthenticate("\x00"+name+"\x00"+name+"-secret"))
}

// authenticateByScram does the same at an address where a secret must not be sent.
func (p *peer) authenticateByScram(name string) {
	p.t.Helper()
	ask[*kmsg.SASLHandshakeResponse](p, 1, saslHandshake(auth.ScramSHA256))
	session, message, err := mechanismsOf(name, name+"-secret")[auth.ScramSHA256].Authenticate(p.t.Context(), "")
	for done := false; err == nil && !done; {
		done, message, err = session.Challenge(ask[*kmsg.SASLAuthenticateResponse](p, 1, saslAuthenticate(string(message))).SASLAuthBytes)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Before it has authenticated a client can ask for versions only; all else ends its connection.
func TestRequestsBeforeAuthentication(t *testing.T) {
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: newAccounts("shop")})
	for _, kind := range requests {
		p := dial(t, s)
		r := kmsg.RequestForKey(kind.key)
		r.SetVersion(kind.max)
		switch kind.key {
		case keyAPIVersions:
			wantCode(t, "versions", ask[*kmsg.ApiVersionsResponse](p, 2, r).ErrorCode, nil)
		case keySASLHandshake:
			refused := ask[*kmsg.SASLHandshakeResponse](p, 1, saslHandshake("OTHER"))
			wantCode(t, "an unknown mechanism", refused.ErrorCode, kerr.UnsupportedSaslMechanism)
			if want := []string{auth.ScramSHA256, auth.ScramSHA512, auth.Plain, auth.OAuthBearer}; !slices.Equal(refused.SupportedMechanisms, want) {
				t.Errorf("mechanisms %v, want %v", refused.SupportedMechanisms, want)
			}
		case keySASLAuthenticate:
			wantCode(t, "no handshake", ask[*kmsg.SASLAuthenticateResponse](p, 2, saslAuthenticate("\x00a\x00b")).ErrorCode, kerr.IllegalSaslState)
		default:
			p.send(r)
			p.closed()
		}
	}
	p := dial(t, s)
	p.write(frameOf(append([]byte{0, keySASLAuthenticate, 0, 0, 0, 0, 0, 1}, make([]byte, loginBytes)...)...))
	p.closed()
}

// After a failure the client gets the answer, and nothing more.
func TestFailedAuthenticationEndsTheConnection(t *testing.T) {
	all := newAccounts("shop")
	all.add(&account{name: "old", expires: time.Now().Add(-time.Second)})
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: all})
	for _, test := range []struct {
		mechanism, message string
		want               error
	}{
		{auth.Plain, "shop-secret", auth.ErrMalformed},
		{auth.Plain, "\x00nobody\x00nobody-secret", errNobody},
		{auth.Plain, "\x00old\x00old-secret", errExpired},
		{auth.ScramSHA256, "n,,n=shop", auth.ErrMalformed},
		{auth.ScramSHA256, "n,a=other,n=shop,r=1", auth.ErrMalformed},
		{auth.ScramSHA512, "p=tls-unique,,n=shop,r=1", auth.ErrMalformed},
	} {
		p := dial(t, s)
		ask[*kmsg.SASLHandshakeResponse](p, 1, saslHandshake(test.mechanism))
		failed := ask[*kmsg.SASLAuthenticateResponse](p, 0, saslAuthenticate(test.message))
		wantCode(t, test.message, failed.ErrorCode, kerr.SaslAuthenticationFailed)
		if !strings.HasPrefix(orEmpty(failed.ErrorMessage), test.want.Error()) {
			t.Errorf("%q: %q, want %v", test.message, orEmpty(failed.ErrorMessage), test.want)
		}
		p.closed()
	}
}

// A server without accounts says so to a client that wants to authenticate.
func TestSASLWithoutAccounts(t *testing.T) {
	p := dial(t, start(t, nil, Options{}))
	wantCode(t, "handshake", ask[*kmsg.SASLHandshakeResponse](p, 1, saslHandshake(auth.Plain)).ErrorCode, kerr.IllegalSaslState)
}

// Clients of the oldest version send tokens without headers.
func TestBareSASL(t *testing.T) {
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: newAccounts("shop")})
	bare := func(p *peer, mechanism string, steps func(send func([]byte) []byte)) {
		wantCode(t, "handshake", ask[*kmsg.SASLHandshakeResponse](p, 0, saslHandshake(mechanism)).ErrorCode, nil)
		steps(func(token []byte) []byte {
			p.write(append([]byte{0, 0, 0, byte(len(token))}, token...))
			return p.frame()
		})
	}
	p := dial(t, s)
	bare(p, auth.Plain, func(send func([]byte) []byte) { send([]byte("\x00shop\x00shop-secret")) })
	ask[*kmsg.MetadataResponse](p, 4, metadataRequest())
	p = dial(t, s)
	bare(p, auth.ScramSHA256, func(send func([]byte) []byte) {
		session, message, err := mechanismsOf("shop", "shop-secret")[auth.ScramSHA256].Authenticate(t.Context(), "")
		for done := false; err == nil && !done; {
			done, message, err = session.Challenge(send(message))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	ask[*kmsg.MetadataResponse](p, 4, metadataRequest())
	p = dial(t, s)
	wantCode(t, "handshake", ask[*kmsg.SASLHandshakeResponse](p, 0, saslHandshake(auth.Plain)).ErrorCode, nil)
	p.write([]byte("\x00\x00\x00\x0b\x00shop\x00wrong"))
	p.closed()
}

// A session has the lifetime of its account; a client may authenticate again as the same one only.
func TestAuthenticationAgain(t *testing.T) {
	all := newAccounts("shop", "other")
	all.add(&account{name: "short", expires: time.Now().Add(time.Hour)})
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: all})
	p := dial(t, s)
	for range 2 {
		got := p.authenticate("short")
		wantCode(t, "authenticate", got.ErrorCode, nil)
		if left := time.Duration(got.SessionLifetimeMillis) * time.Millisecond; left <= 0 || left > time.Hour {
			t.Errorf("the session lasts %v, want the hour of the account", left)
		}
		ask[*kmsg.MetadataResponse](p, 4, metadataRequest())
	}
	wantCode(t, "another account", p.authenticate("other").ErrorCode, kerr.SaslAuthenticationFailed)
	p.closed()
	if got := dial(t, s).authenticate("shop").SessionLifetimeMillis; got != 0 {
		t.Errorf("the session of an account that does not expire lasts %d ms", got)
	}
}

// overPipeWith runs a test in virtual time with the end of a connection to a server with accounts, at an
// address that is not loopback.
func overPipeWith(t *testing.T, all *accounts, test func(t *testing.T, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(nil, Options{Accounts: all})
		here, there := net.Pipe()
		c := newConnection(t.Context(), s, here, s.options.listeners()[0])
		s.connections[c] = struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		var ends sync.WaitGroup
		ends.Go(func() { _ = c.read(t.Context()) })
		ends.Go(func() { _ = c.send(t.Context()) })
		ends.Go(func() { _ = s.endLogins(ctx) })
		test(t, &peer{t: t, conn: there})
		_ = there.Close()
		cancel()
		ends.Wait()
	})
}

// A client has ten seconds, whatever it sends.
func TestSlowAuthentication(t *testing.T) {
	overPipeWith(t, newAccounts("shop"), func(t *testing.T, p *peer) {
		began := time.Now()
		for time.Since(began) < loginTime-time.Second {
			ask[*kmsg.ApiVersionsResponse](p, 2, apiVersionsRequest())
			time.Sleep(time.Second)
		}
		_, err := p.conn.Read(make([]byte, 1))
		if took := time.Since(began); !errors.Is(err, io.EOF) || took != loginTime {
			t.Errorf("%v after %v, want the end after %v", err, took, loginTime)
		}
	})
}

// Without TLS a secret is not asked for over a network.
func TestPlainNeedsTLS(t *testing.T) {
	overPipeWith(t, newAccounts("shop"), func(t *testing.T, p *peer) {
		refused := ask[*kmsg.SASLHandshakeResponse](p, 1, saslHandshake(auth.Plain))
		wantCode(t, "PLAIN", refused.ErrorCode, kerr.UnsupportedSaslMechanism)
		if want := []string{auth.ScramSHA256, auth.ScramSHA512}; !slices.Equal(refused.SupportedMechanisms, want) {
			t.Errorf("mechanisms %v, want %v", refused.SupportedMechanisms, want)
		}
	})
}

// The connections of an account end within a second when it expires or is revoked, and no others do.
func TestAccountsThatEnd(t *testing.T) {
	for _, test := range []string{"expired", "revoked"} {
		all := newAccounts("shop")
		overPipeWith(t, all, func(t *testing.T, p *peer) {
			if test == "expired" {
				all.add(&account{name: "shop", expires: time.Now().Add(time.Minute)})
			}
			p.authenticateByScram("shop")
			began := time.Now()
			if test == "revoked" {
				time.Sleep(time.Minute)
				ask[*kmsg.ApiVersionsResponse](p, 2, apiVersionsRequest())
				all.revoke("shop")
			}
			_, err := p.conn.Read(make([]byte, 1))
			if took := time.Since(began); !errors.Is(err, io.EOF) || took < time.Minute || took > time.Minute+checkLogins {
				t.Errorf("%s: %v after %v, want the end after a minute", test, err, took)
			}
		})
	}
}

// Connections that do not authenticate are bounded, and leave their places when they do.
func TestStrangersAreBounded(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	s := NewServer(b, Options{Addr: "127.0.0.1:0", Accounts: newAccounts("shop")})
	s.strangers = connlimit.New(connlimit.Bounds{Total: 2}, s.log)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s.Stop) })
	first, second := dial(t, s), dial(t, s)
	for _, p := range []*peer{first, second} {
		ask[*kmsg.ApiVersionsResponse](p, 2, apiVersionsRequest())
	}
	turnedAway := func() {
		t.Helper()
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return
		}
		defer conn.Close()
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("a third connection is served")
		}
	}
	turnedAway()
	first.authenticate("shop")
	third := dial(t, s)
	ask[*kmsg.ApiVersionsResponse](third, 2, apiVersionsRequest())
	turnedAway()
	ask[*kmsg.MetadataResponse](first, 4, metadataRequest())
}
