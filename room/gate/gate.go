package gate

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/internal/tracing"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/watch"
)

// Rooms is the part of room's engine that a gate needs.
type Rooms interface {
	Settings(ctx context.Context, name string) (room.Settings, error)
	MayEnter(ctx context.Context, name string) error
	Enter(ctx context.Context, name string, visit room.Visit) (engine.Answer, error)
	Ask(ctx context.Context, name, ticket string, client netip.Addr) (engine.Answer, error)
	AskPass(ctx context.Context, name, pass string, client netip.Addr) (engine.Answer, error)
	Parse(ctx context.Context, name, ticket string, client netip.Addr) (engine.Ticket, error)
	Prove(ctx context.Context, name, ticket string, client netip.Addr) (string, error)
	AskAll(ctx context.Context, name string, askers []engine.Asker, claim bool) []engine.Result
	Renew(ctx context.Context, name, ticket string, client netip.Addr) (engine.Answer, error)
	Leave(ctx context.Context, name, ticket string, client netip.Addr) error
	LeavePass(ctx context.Context, name, pass string) error
}

// Streams is the part of watch's hub that a gate needs.
type Streams interface {
	Serve(w http.ResponseWriter, r *http.Request, spec watch.Stream) error
}

const (
	// AskTime bounds a call to the engine; after it the store counts as not answering.
	AskTime = 2 * time.Second
	// MaxForm is the most bytes of a form that is sent to the gate itself.
	MaxForm = 16 << 10
	// FormTime is how long such a form may take to arrive.
	FormTime = 10 * time.Second
	// maxCookie is the most bytes of a cookie that is read.
	maxCookie = 2 << 10
	// freshPass is how long a pass in a cookie must still be valid; otherwise the next
	// page renews it.
	freshPass = 30 * time.Second
	// logEvery is how often a failure of the store is logged.
	logEvery = 10 * time.Second
)

// Options of a gate.
type Options struct {
	// Sites are what the gate does for which hosts; the first that has a host holds. Others get
	// 421. See [Gate.SetSites]. Required.
	Sites []Site
	// TrustedProxies are the addresses whose X-Forwarded-For and X-Forwarded-Proto are
	// trusted. Default: none.
	TrustedProxies []netip.Prefix
	// Recheck is how long a pass is believed after the engine has confirmed it: visits that
	// ended elsewhere end here that much later. Default [DefaultRecheck]; negative: each
	// request asks.
	Recheck time.Duration
	// SecureCookies sets Secure on all cookies and begins their names with __Host-, for a
	// proxy in front that ends TLS without saying so. Default: that is done when the
	// request came over TLS, or a trusted proxy says that it did.
	SecureCookies bool
	// Languages are the languages that the page is offered in, the default first; those of
	// [Site].Texts follow if they are not among them. Default: [Languages].
	Languages []language.Tag
	// Challenge must be passed before joining. Default: none.
	Challenge Challenge
	// ChallengeFailure is what happens to newcomers while the challenge's service cannot be
	// reached. Default: the room's OnStoreFailure. See [WithBackup] too.
	ChallengeFailure room.OnStoreFailure
	// Join waits until a newcomer may join, and reports whether that is so; leave ends it. Others get a page that
	// comes again. Default: all may.
	Join func(ctx context.Context) (leave func(), joins bool)
	// Metrics count what the gate does. Default: some that nobody reads.
	Metrics *Metrics
	// TracerProvider makes a span of each request, which goes on to the upstream. Default: none, and the upstream
	// gets the traceparent of the request.
	TracerProvider trace.TracerProvider
	// Logger gets failures. Default: slog.Default().
	Logger *slog.Logger
}

// Gate is the gate of some sites. It is safe for concurrent use.
type Gate struct {
	rooms   Rooms
	streams Streams
	options Options
	sites   atomic.Pointer[[]*site]
	own     *http.ServeMux
	metrics *Metrics
	tracer  trace.Tracer
	logger  *slog.Logger
	logged  atomic.Int64
	store   storeHealth
	// believed are the passes that were confirmed lately.
	believed believed
	// shares bound the clients of a pass.
	shares shares
}

// New returns a gate. Without streams the page polls for its place. The error says which
// option is wrong.
func New(rooms Rooms, streams Streams, options Options) (*Gate, error) {
	g := &Gate{rooms: rooms, streams: streams, options: options, tracer: tracing.Tracer(options.TracerProvider), logger: options.Logger}
	g.believed.length = cmp.Or(options.Recheck, DefaultRecheck)
	g.logger = cmp.Or(g.logger, slog.Default())
	if g.metrics = options.Metrics; g.metrics == nil {
		g.metrics = NewMetrics()
	}
	g.own = g.ownPaths()
	if err := g.SetSites(options.Sites); err != nil {
		return nil, err
	}
	return g, nil
}

// ownPrefix begins the paths that gates answer themselves.
const ownPrefix = "/.sluice/"

// base returns the path below which a room has its paths at a gate.
func base(name string) string { return ownPrefix + name + "/" }

func pathsOf(name string) Paths {
	b := base(name)
	return Paths{Watch: b + "watch", Status: b + "status", Leave: b + "leave", Join: b + "join", Enter: b + "enter", Code: b + "code"}
}

// Middleware returns a handler that sends permitted requests on to the upstreams of their sites,
// or to next.
func (g *Gate) Middleware(next http.Handler) http.Handler {
	return g.traced(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			// CONNECT has no path to check, and asks for a tunnel.
			http.Error(w, "a gate is no proxy to other places", http.StatusMethodNotAllowed)
		case r.URL.Path == CheckPath, strings.HasPrefix(r.URL.Path, CheckPath+"/"):
			g.check(w, r)
		case r.URL.Path == PagePath:
			g.checkedPage(w, r)
		case r.URL.Path == ScriptPath:
			serveScript(w, appScript)
		default:
			g.serve(w, r, next)
		}
	}))
}

// serve answers a request by its site.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	s := g.siteOf(r.Host)
	if s == nil {
		g.misdirected(w, r)
		return
	}
	if s.ownRoom(r.URL.Path) != nil {
		g.own.ServeHTTP(w, r)
		return
	}
	if s.Upstream != nil {
		next = s.Upstream
	}
	g.decide(s, w, r, nil, next)
}

// misdirected answers that the gate has no site of that host.
func (g *Gate) misdirected(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "this gate has no site of the host "+strings.ToValidUTF8(r.Host[:min(len(r.Host), 100)], "?"), http.StatusMisdirectedRequest)
}

// decide answers a request, or sends it on to next. The handed cookies go with the answer. It
// returns the door of the room whose pass the request may need, nil if that cannot be told.
func (g *Gate) decide(s *site, w http.ResponseWriter, r *http.Request, handed []*http.Cookie, next http.Handler) *door {
	d, needs, err := s.doorOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	v := g.visit(s, d, w, r)
	v.cookies, v.next = handed, next
	if needs {
		v.decide()
	} else {
		v.pass(nil)
	}
	return d
}

// Failed shows the page for an upstream that does not answer, with status 502 or 504.
func (g *Gate) Failed(w http.ResponseWriter, r *http.Request, status int) {
	s := g.siteOf(r.Host)
	if s == nil { // the sites have changed since
		http.Error(w, http.StatusText(status), status)
		return
	}
	v := g.visit(s, s.main, w, r)
	page := v.newPage(KindFailed)
	page.Retry = true
	page.Notices = nil // it is not known whether the upstream got the form
	v.respond(status, problem{Code: "upstream", Detail: "what is behind the gate does not answer; try again"}, page)
}

// failed logs a failure of the store, at most every logEvery.
func (v *visit) failed(err error) {
	g, ctx := v.gate, v.r.Context()
	now, last := time.Now().UnixNano(), g.logged.Load()
	if now-last < int64(logEvery) || !g.logged.CompareAndSwap(last, now) {
		return
	}
	g.logger.ErrorContext(ctx, "the gate got no answer from the room", "room", v.door.room, "error", err)
}
