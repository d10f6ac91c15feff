package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// MaxTokens is the most tokens and SCRAM users together.
	MaxTokens = 1000
	// Follow is how often an instance looks whether another has changed the tokens.
	Follow = 2 * time.Second
	// AdminName is the name of the admin token of the settings.
	AdminName = "admin"
	// LeastAdmin is the least length of the admin token.
	LeastAdmin = 20

	callTime = 5 * time.Second // bounds a call of the store
)

var (
	// ErrUnknown means that no token has the secret, or not any more.
	ErrUnknown = errors.New("access: nobody has this token: it was revoked, rotated or never made")
	// ErrExpired means that the token has ended.
	ErrExpired = errors.New("access: the token has expired")
)

// Options configure Accounts.
type Options struct {
	// Logger gets failures to follow the store. Default slog.Default().
	Logger *slog.Logger
	// Provider knows JWTs. Default nil: JWTs are unknown.
	Provider *Provider
	// Names make names of certificates. Default nil: the common name.
	Names *CertNames
	// Grants say what those may do whom JWTs and certificates make known: the first that matches.
	Grants []Grant
	// RequestsPerSecond is how many requests somebody may send over HTTP in a second, but for the admin token of the
	// settings. Default 0: any number.
	RequestsPerSecond int
	// Exchange divides the rates of quotas among the instances that share them. Default nil: this instance has each whole rate.
	Exchange Exchange
}

// Accounts knows the tokens. It is a lifecycle.Service, and safe for concurrent use.
type Accounts struct {
	*lifecycle.Group
	store  Store
	logger *slog.Logger
	jwts   *Provider // nil: there is none
	names  *CertNames
	grants atomic.Pointer[grants]
	admin  atomic.Pointer[record]
	known  atomic.Pointer[snapshot]

	buckets  buckets
	exchange Exchange // nil: there is none
	// perSecond is how many requests over HTTP somebody may send in a second; 0: any number.
	perSecond float64

	mu     sync.Mutex // of reading and changing the document
	failed bool       // the last read failed
}

// snapshot is the document as it was read.
type snapshot struct {
	*document
	version string
	byHash  map[hash]*record
	byName  map[string]*record
	judged  judged
	limits  quotas

	tenantRates tenantRates
}

func newSnapshot(d *document, version string) *snapshot {
	s := &snapshot{document: d, version: version, byHash: map[hash]*record{}, byName: map[string]*record{}, judged: newJudged(d.ACLs), limits: newQuotas(d.Quotas), tenantRates: newTenantRates(d.Quotas)}
	for i := range d.Tokens {
		r := &d.Tokens[i]
		s.byHash[r.hash], s.byName[r.Name] = r, r
	}
	return s
}

// New returns the accounts of a store, and one more: the admin token of the settings. It knows the others once it is
// started.
func New(store Store, admin string, options Options) (*Accounts, error) {
	a := &Accounts{Group: lifecycle.NewGroup(context.Background()), store: store, logger: options.Logger, jwts: options.Provider, names: options.Names, perSecond: float64(options.RequestsPerSecond)}
	if a.logger == nil {
		a.logger = slog.Default()
	}
	if a.exchange = options.Exchange; a.exchange != nil {
		a.buckets.wake, a.buckets.others = lifecycle.NewSignal(), assumed
	}
	a.known.Store(newSnapshot(&document{}, ""))
	a.SetGrants(options.Grants)
	return a, a.SetAdmin(admin)
}

// SetAdmin replaces the admin token. The one before is unknown at once.
func (a *Accounts) SetAdmin(secret string) error {
	if len(secret) < LeastAdmin {
		return fmt.Errorf("the admin token has %d characters: want at least %d", len(secret), LeastAdmin)
	}
	if old := a.admin.Load(); old != nil && old.hash == sha256.Sum256([]byte(secret)) {
		return nil
	}
	r := &record{Token: Token{Principal: Principal{Name: AdminName, Roles: []Role{Admin}}}}
	if err := r.setSecret(secret); err != nil {
		return err
	}
	r.hash = hash(r.Hash)
	a.admin.Store(r)
	return nil
}

// Name implements lifecycle.Service.
func (a *Accounts) Name() string { return "accounts" }

// Start reads the tokens, and follows their changes.
func (a *Accounts) Start(ctx context.Context) error {
	if err := a.refresh(ctx); err != nil {
		return fmt.Errorf("read the tokens: %w", err)
	}
	if a.jwts != nil {
		a.Go("follow the keys of the identity provider", a.jwts.options.Keys.Follow)
	}
	if a.exchange != nil {
		a.Go("divide rates", a.divideRates)
	}
	a.Go("follow the store", func(ctx context.Context) error {
		for lifecycle.Sleep(ctx, nil, Follow) {
			a.report(a.refresh(ctx))
		}
		return nil
	})
	return nil
}

// refresh reads the document.
func (a *Accounts) refresh(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.read(ctx)
	return err
}

// read reads the document. a.mu is held.
func (a *Accounts) read(ctx context.Context) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	text, version, err := a.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	if now := a.known.Load(); version == now.version {
		return now, nil
	}
	d, err := decode(text)
	if err != nil {
		return nil, err
	}
	s := newSnapshot(d, version)
	a.known.Store(s)
	return s, nil
}

// report logs the first failure of several, and that reading works again.
func (a *Accounts) report(err error) {
	switch {
	case err != nil && !a.failed && !errors.Is(err, context.Canceled):
		a.logger.Error("the tokens cannot be read: those that were read last hold, and a revocation by another instance does not reach this one", "error", err)
	case err == nil && a.failed:
		a.logger.Info("the tokens can be read again")
	}
	a.failed = err != nil
}

// Bearer returns who has a secret, or a JWT if there is a provider: ErrUnknown if nobody has, ErrExpired if the token
// has ended, ErrBadJWT for a JWT that is not valid.
func (a *Accounts) Bearer(secret string) (*Principal, error) {
	var stack [128]byte // longer secrets, which only JWTs are, are copied to the heap
	sum := sha256.Sum256(append(stack[:0], secret...))
	if a.jwts != nil && isJWT(secret) && a.admin.Load().hash != sum {
		return a.jwt(secret, sum)
	}
	return a.byHash(sum)
}

func (a *Accounts) byHash(sum hash) (*Principal, error) {
	r := a.admin.Load()
	if r.hash != sum {
		if r = a.known.Load().byHash[sum]; r == nil {
			return nil, ErrUnknown
		}
	}
	return r.valid()
}

func (r *record) valid() (*Principal, error) {
	if r.expired(time.Now()) {
		return nil, ErrExpired
	}
	return &r.Principal, nil
}

// Scram returns who has a name, and the keys with which they prove it by a mechanism; a mechanism that does not exist
// panics. Errors are those of Bearer. With ErrUnknown it returns keys that are always the same for the name, and that
// nobody can prove to have: clients do not find out which names exist.
func (a *Accounts) Scram(name, mechanism string) (*Principal, ScramKeys, error) {
	r, known := a.admin.Load(), a.known.Load()
	if name != AdminName {
		r = known.byName[name]
	}
	if keys, has := known.Users[name][mechanism]; has && r == nil {
		return a.user(name, mechanism, keys), keys, nil
	}
	if r == nil {
		return nil, a.decoy(name).scram(mechanism), ErrUnknown
	}
	p, err := r.valid()
	return p, r.scram(mechanism), err
}

// decoy returns the keys of a name that nobody has: the same at all instances, and after a restart.
func (a *Accounts) decoy(name string) *record {
	seed := a.admin.Load().Hash
	derive := func(key string) []byte {
		mac := hmac.New(sha512.New, seed)
		mac.Write([]byte(key + name))
		return mac.Sum(nil)
	}
	stored, server := derive("stored "), derive("server ")
	return &record{
		Salt: derive("salt ")[:saltBytes],
		S256: keyPair{stored[:sha256.Size], server[:sha256.Size]}, S512: keyPair{stored, server},
	}
}

// seed returns what only the instances know, of a purpose.
func (a *Accounts) seed(purpose string) hash {
	mac := hmac.New(sha256.New, a.admin.Load().Hash)
	mac.Write([]byte(purpose))
	return hash(mac.Sum(nil))
}

func (r *record) scram(mechanism string) ScramKeys {
	pair := r.S256
	switch mechanism {
	case ScramSHA256:
	case ScramSHA512:
		pair = r.S512
	default:
		panic("access: there is no mechanism " + mechanism)
	}
	return ScramKeys{Salt: r.Salt, Iterations: Iterations, Stored: pair.Stored, Server: pair.Server}
}

// Valid reports whether somebody who was known still is. Open connections and streams ask it every second. Without
// accounts everybody is.
func (a *Accounts) Valid(p *Principal) bool {
	if a == nil || p == nil {
		return true
	}
	if p.stands != nil {
		return p.standing()
	}
	_, err := a.byHash(p.hash)
	return err == nil
}

// Explain returns the text of an error of this package for clients.
func Explain(err error) string { return strings.TrimPrefix(err.Error(), "access: ") }
