package gate

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/watch"
)

// Rooms is the part of room's engine that a gate needs.
type Rooms interface {
	Settings(ctx context.Context, name string) (room.Settings, error)
	Enter(ctx context.Context, name string, visit room.Visit) (room.Answer, error)
	Ask(ctx context.Context, name, ticket string, client netip.Addr) (room.Answer, error)
	AskPass(ctx context.Context, name, pass string) (room.Answer, error)
	Parse(ctx context.Context, name, ticket string, client netip.Addr) (room.Ticket, error)
	AskAll(ctx context.Context, name string, askers []room.Asker, claim bool) []room.Result
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
	// Room is the room's name. Required.
	Room string
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
	// Brand is a name that the page shows. Default: none.
	Brand string
	// Languages are the languages that the page is offered in, the default first.
	// Default: [Languages].
	Languages []language.Tag
	// Template renders the pages; see [Page] and [ParseTemplate]. Default: the page of
	// this package.
	Template *template.Template
	// Challenge must be passed before joining. Default: none.
	Challenge Challenge
	// Logger gets failures. Default: slog.Default().
	Logger *slog.Logger
}

// Gate is the gate of one room. It is safe for concurrent use.
type Gate struct {
	rooms   Rooms
	streams Streams
	options Options
	page    *template.Template
	words   *chooser
	paths   Paths
	own     *http.ServeMux
	logger  *slog.Logger
	logged  atomic.Int64
	store   storeHealth
	// believed are the passes that were confirmed lately.
	believed believed
}

// New returns a gate. Without streams the page polls for its place. The error says which
// option is wrong; a template is tried with pages of all kinds.
func New(rooms Rooms, streams Streams, options Options) (*Gate, error) {
	if err := room.ValidName(options.Room); err != nil {
		return nil, fmt.Errorf("room: %w", err)
	}
	if base(options.Room) == CheckPath+"/" {
		return nil, fmt.Errorf("room: %q is a path of the gate's own; give the room another name", options.Room)
	}
	words, err := newChooser(options.Languages)
	if err != nil {
		return nil, err
	}
	g := &Gate{
		rooms: rooms, streams: streams, options: options,
		page: options.Template, words: words, paths: pathsOf(options.Room), logger: options.Logger,
	}
	if g.page == nil {
		g.page = builtIn
	} else if err := checkTemplate(g.page, words.words); err != nil {
		return nil, err
	}
	g.believed.length = cmp.Or(options.Recheck, DefaultRecheck)
	g.logger = cmp.Or(g.logger, slog.Default())
	if streams == nil {
		g.paths.Watch = ""
	}
	g.own = g.ownPaths()
	return g, nil
}

// ownPrefix begins the paths that gates answer themselves.
const ownPrefix = "/.sluice/"

// base returns the path below which a room has its paths at a gate.
func base(name string) string { return ownPrefix + name + "/" }

func pathsOf(name string) Paths {
	b := base(name)
	return Paths{Watch: b + "watch", Status: b + "status", Leave: b + "leave", Join: b + "join", Enter: b + "enter"}
}

// Middleware returns a handler that sends permitted requests on to next.
func (g *Gate) Middleware(next http.Handler) http.Handler {
	own := base(g.options.Room)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			// CONNECT has no path to check, and asks for a tunnel.
			http.Error(w, "a gate is no proxy to other places", http.StatusMethodNotAllowed)
		case !strings.HasPrefix(r.URL.Path, ownPrefix):
			g.visit(w, r).serve(next)
		case strings.HasPrefix(r.URL.Path, own):
			g.own.ServeHTTP(w, r)
		case r.URL.Path == CheckPath, strings.HasPrefix(r.URL.Path, CheckPath+"/"):
			g.check(w, r)
		case r.URL.Path == PagePath:
			g.checkedPage(w, r)
		default:
			g.visit(w, r).serve(next)
		}
	})
}

// Failed shows the page for an upstream that does not answer, with status 502 or 504.
func (g *Gate) Failed(w http.ResponseWriter, r *http.Request, status int) {
	v := g.visit(w, r)
	page := v.newPage(KindFailed)
	page.Retry = true
	page.Notices = nil // it is not known whether the upstream got the form
	v.respond(status, problem{Code: "upstream", Detail: "what is behind the gate does not answer; try again"}, page)
}

// failed logs a failure of the store, at most every logEvery.
func (g *Gate) failed(ctx context.Context, err error) {
	now, last := time.Now().UnixNano(), g.logged.Load()
	if now-last < int64(logEvery) || !g.logged.CompareAndSwap(last, now) {
		return
	}
	g.logger.ErrorContext(ctx, "the gate got no answer from the room", "room", g.options.Room, "error", err)
}
