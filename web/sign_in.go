package web

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
)

// Accounts knows the tokens; access.Accounts says what each method promises.
type Accounts interface {
	Bearer(secret string) (*access.Principal, error)
	List() []access.Token
	Revoke(ctx context.Context, name string) error
}

// look is what somebody needs who uses the dashboard: to see all parts. Their token has no limits: the pages are
// about everything.
const look = access.ReadBulk | access.ReadLimits | access.ReadRooms | access.ReadTopics | access.ReadCluster | access.ReadMetrics

// The paths that need nobody.
const (
	signInPath  = Prefix + "sign-in"
	signOutPath = Prefix + "sign-out"
	staticPath  = Prefix + "static/"
)

// cookieName returns the name of the cookie that has the token. Browsers accept the first only over TLS, from this
// host, for all its paths.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-sluice"
	}
	return "sluice-token"
}

// setToken keeps a token until the browser is closed; "" removes it.
func setToken(w http.ResponseWriter, r *http.Request, token string) {
	cookie := &http.Cookie{Name: cookieName(r), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

var errLimited = errors.New("this token sees a part of the server only: the dashboard needs one of the role viewer, operator or admin, without limits")

// signedIn returns who has a secret, if they may use the dashboard.
func (d *Dashboard) signedIn(secret string) (*access.Principal, error) {
	p, err := d.options.Accounts.Bearer(secret)
	if err != nil {
		return nil, err
	}
	if !p.May(look) || len(p.Tenants)+len(p.Types)+len(p.Rooms)+len(p.Topics)+len(p.Groups) > 0 {
		return nil, errLimited
	}
	return p, nil
}

// guard lets those pass who have signed in, and leads others to the page for that.
func (d *Dashboard) guard(next http.Handler) http.Handler {
	if d.options.Accounts == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == signInPath || r.URL.Path == signOutPath || strings.HasPrefix(r.URL.Path, staticPath) {
			next.ServeHTTP(w, r)
			return
		}
		secret := ""
		if cookie, err := r.Cookie(cookieName(r)); err == nil {
			secret = cookie.Value
		}
		p, err := d.signedIn(secret)
		switch {
		case err == nil:
			next.ServeHTTP(w, r.WithContext(access.With(r.Context(), p)))
		case r.Header.Get("HX-Request") != "":
			w.Header().Set("HX-Refresh", "true") // the whole page, which then leads to the sign-in
			w.WriteHeader(http.StatusUnauthorized)
		default:
			http.Redirect(w, r, signInPath+"?"+url.Values{"to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		}
	})
}

type signInPage struct{ To, Error string }

func (d *Dashboard) showSignIn() {
	if d.options.Accounts == nil {
		return
	}
	d.show(signInPath, "sign_in", func(r *request) (string, any, error) {
		return r.t("sign.in"), signInPage{To: r.get("to")}, nil
	})
	d.mux.HandleFunc("POST "+signInPath, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		asked := &request{r, choose(w, r)}
		secret, to := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("to")
		if _, err := d.signedIn(secret); err != nil {
			d.refuseSignIn(w, asked, to, err)
			return
		}
		setToken(w, r, secret)
		if !strings.HasPrefix(to, Prefix) {
			to = Prefix
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	})
	d.mux.HandleFunc("POST "+signOutPath, func(w http.ResponseWriter, r *http.Request) {
		setToken(w, r, "")
		http.Redirect(w, r, signInPath, http.StatusSeeOther)
	})
}

// refuseSignIn shows the page again. An address may fail a few times.
func (d *Dashboard) refuseSignIn(w http.ResponseWriter, r *request, to string, err error) {
	address, _ := netip.ParseAddrPort(r.RemoteAddr) // without one, all such requests count together
	status, text := http.StatusUnauthorized, access.Explain(err)
	if wait := d.attempts.Failed(address.Addr()); wait > 0 {
		status, text = http.StatusTooManyRequests, r.t("sign.wait", r.span(wait))
	}
	d.options.Audit.Record(access.Known, audit.Entry{
		Edge: audit.HTTP, Address: address.Addr().String(), Operation: "dashboard sign-in", Outcome: audit.Unauthenticated, Code: strconv.Itoa(status),
	})
	d.render(w, r, status, "sign_in", r.t("sign.in"), signInPage{to, text})
}

// may reports whether somebody may do something; without accounts everybody may.
func may(ctx context.Context, right access.Right) bool { return access.From(ctx).May(right) }

// need returns an error unless somebody has a right.
func need(ctx context.Context, right access.Right) error {
	if may(ctx, right) {
		return nil
	}
	return &statusError{http.StatusForbidden, errors.New(access.From(ctx).String() + " lacks the right " + right.String() +
		": want one of the roles " + access.JoinRoles(access.RolesWith(right)))}
}
