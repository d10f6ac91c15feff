package ops

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
	"github.com/sluice-project/sluice/lifecycle"
)

// revokedAge is how long after it has ended somebody's requests may go on.
const revokedAge = time.Second

// guard admits requests of those who show a valid token or certificate with the right that they need. It implements edge.Guard.
type guard struct {
	accounts *access.Accounts // nil: anybody may do everything
	trail    *audit.Trail     // nil: there is none
	attempts *access.Attempts
	ownSite  http.CrossOriginProtection
	refused  *prometheus.CounterVec
}

func newGuard(accounts *access.Accounts, trail *audit.Trail) *guard {
	return &guard{accounts: accounts, trail: trail, attempts: access.NewAttempts(), refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_http_refused_total",
		Help: "Requests for operators that were refused: unauthenticated (no valid token), forbidden (the token lacks the right), too_many (failed attempts, or more in a second than an account or a tenant may send).",
	}, []string{"reason"})}
}

// Admit implements edge.Guard.
func (g *guard) Admit(w http.ResponseWriter, r *http.Request, operation string, right access.Right) (*http.Request, *edge.Error) {
	a, _ := w.(*reply)
	r = g.follows(a, r, operation, right)
	if g.accounts == nil {
		return r, nil
	}
	p, err := g.sender(r)
	if a != nil {
		a.act.sender, a.act.stranger = p, err != nil
	}
	switch {
	case err != nil && right == access.Open:
		p = access.Nobody
	case err != nil:
		return nil, g.unknown(r, err)
	case len(p.Roles) == 0 && right != access.Open:
		g.refused.WithLabelValues("forbidden").Inc()
		return nil, edge.Refuse(http.StatusForbidden, problem.Forbidden, p.Name+" has no role here: want one in access.grants for this name, or for a value of the claims of a JWT")
	case !p.May(right):
		g.refused.WithLabelValues("forbidden").Inc()
		return nil, edge.Refuse(http.StatusForbidden, problem.Forbidden, p.String()+" lacks the right "+right.String()+": want one of the roles "+access.JoinRoles(access.RolesWith(right)))
	default:
		if late, tooMany := errors.AsType[*access.TooManyError](g.counted(p, right)); tooMany {
			g.refused.WithLabelValues("too_many").Inc()
			return nil, edge.Refuse(http.StatusTooManyRequests, problem.Busy, late.Error()).RetryAfter(late.Wait)
		}
		if a != nil {
			a.streams.sentBy(a, p)
		}
	}
	return r.WithContext(access.With(r.Context(), p)), nil
}

// counted counts a request, unless it is for the public, who needs no token, and returns an error if its sender has to wait first.
func (g *guard) counted(p *access.Principal, right access.Right) error {
	if right == access.Open {
		return nil
	}
	return g.accounts.Request(p)
}

var errNoToken = errors.New("this needs a token: want the header Authorization: Bearer <token>, which commands take from SLUICE_TOKEN or --token-file")

var errOtherSite = errors.New("a page of another site sent this request, with the certificate of the browser: want a token for it")

// sender returns who sent a request: who has the token, or, if it shows none, the certificate of its connection.
func (g *guard) sender(r *http.Request) (*access.Principal, error) {
	shown := r.Header.Get("Authorization")
	if shown == "" && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		if g.ownSite.Check(r) != nil { // browsers send certificates along, whoever makes them send a request
			return nil, errOtherSite
		}
		return g.accounts.Certificate(r.TLS.VerifiedChains[0][0])
	}
	scheme, secret, _ := strings.Cut(shown, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, errNoToken
	}
	return g.accounts.Bearer(strings.TrimSpace(secret))
}

// unknown refuses a request of somebody who is not known. An address may fail a few times.
func (g *guard) unknown(r *http.Request, err error) *edge.Error {
	address, _ := netip.ParseAddrPort(r.RemoteAddr) // without one, all such requests count together
	if wait := g.attempts.Failed(address.Addr()); wait > 0 {
		g.refused.WithLabelValues("too_many").Inc()
		return edge.Refuse(http.StatusTooManyRequests, problem.Busy, "too many requests without a valid token came from this address").RetryAfter(wait)
	}
	g.refused.WithLabelValues("unauthenticated").Inc()
	return edge.Refuse(http.StatusUnauthorized, problem.Unauthenticated, access.Explain(err)).Set("WWW-Authenticate", "Bearer")
}

// wrap guards the handler of a pattern that is no operation of the API.
func (g *guard) wrap(pattern string, next http.Handler) http.Handler {
	right := access.Path(pattern)
	if right == access.Open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, refusal := g.Admit(w, r, pattern, right)
		if refusal != nil {
			refusal.Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// endInvalid ends the requests of those whose token or certificate has ended.
func (s *Server) endInvalid(ctx context.Context) error {
	check := s.options.CheckCertificate
	for lifecycle.Sleep(ctx, nil, revokedAge) {
		s.streams.endIf(func(a *reply) bool {
			return !s.guard.accounts.Valid(a.sender) || a.shown != nil && check(a.shown) != nil
		})
	}
	return nil
}

// certified refuses requests on connections whose client has a certificate that is not good any more.
func (s *Server) certified(next http.Handler) http.Handler {
	check := s.options.CheckCertificate
	if check == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			if err := check(r.TLS); err != nil {
				edge.Refuse(http.StatusUnauthorized, problem.Unauthenticated, err.Error()).Set("Connection", "close").Write(w)
				return
			}
			if a, tracked := w.(*reply); tracked {
				s.streams.certified(a, r.TLS)
			}
		}
		next.ServeHTTP(w, r)
	})
}
