package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/lifecycle"
)

// Prefix begins all paths of the dashboard.
const Prefix = "/ui/"

const (
	// pageSize is how many rows a list shows at a time.
	pageSize = 50
	// pageTime bounds what one page waits for the engines.
	pageTime = 10 * time.Second
	// maxForm bounds the body of an act.
	maxForm = 16 << 10
)

// policy allows what the dashboard itself serves, and nothing else.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

//go:embed static
var static embed.FS

// Options are what the dashboard shows.
type Options struct {
	// Bulk, Rooms and Topics are the parts. Default nil: the part is off.
	Bulk   Bulk
	Rooms  Rooms
	Topics Topics
	// Accounts knows who may use the dashboard. Default nil: there are no accounts, and everybody may.
	Accounts Accounts
	// Audit gets acts and failed sign-ins. Default nil: nothing is recorded.
	Audit *audit.Trail
	// Metrics has the metrics of all parts. Required.
	Metrics prometheus.Gatherer
	// Failing returns the errors of failed readiness checks, by name. Required.
	Failing func(ctx context.Context) map[string]string
	// Warnings returns what an operator should look at although all checks pass, by name. Default nil: nothing.
	Warnings func(ctx context.Context) map[string]string
	// Settings returns the settings in force, as YAML with their origin, without secrets. Required.
	Settings func() (string, error)
	// Logger gets errors of templates. Default slog.Default().
	Logger *slog.Logger
}

// Dashboard serves the pages. It is a lifecycle.Service: its history grows while it runs.
type Dashboard struct {
	*lifecycle.Group
	options Options
	history *history
	screens map[string]func() (screens, error) // by language; parsed when the first page is shown
	mux     *http.ServeMux
	handler http.Handler
	version string // of the static files
	// explaining has a place for each job that is being explained.
	explaining chan struct{}
	attempts   *access.Attempts
}

var _ lifecycle.Service = (*Dashboard)(nil)

// New returns a dashboard. Its handler serves before Start too, without a history.
func New(options Options) (*Dashboard, error) {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	d := &Dashboard{
		Group:   lifecycle.NewGroup(context.Background()),
		options: options, history: newHistory(options.Metrics), screens: map[string]func() (screens, error){}, mux: http.NewServeMux(),
		explaining: make(chan struct{}, 1), attempts: access.NewAttempts(),
	}
	files, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	if d.version, err = digest(files); err != nil {
		return nil, err
	}
	for _, l := range languages {
		d.screens[l.code] = sync.OnceValues(func() (screens, error) { return parseScreens(l) })
	}
	d.mux.Handle("GET "+staticPath, http.StripPrefix(staticPath, forever(http.FileServerFS(files))))
	d.showOverview()
	d.showBulk()
	d.showRooms()
	d.showReport()
	d.showTopics()
	d.showCluster()
	d.showAccess()
	d.takeActs()
	d.showSignIn()
	own := http.NewCrossOriginProtection()
	d.handler = headers(own.Handler(d.guard(d.mux)))
	return d, nil
}

// digest returns a name of the content of files.
func digest(files fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		sum.Write(content)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}

// Name implements lifecycle.Service.
func (*Dashboard) Name() string { return "dashboard" }

// Start implements lifecycle.Service.
func (d *Dashboard) Start(context.Context) error {
	d.Go("history", d.history.grow)
	return nil
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// forever lets browsers keep files: pages name them with the digest of their content.
func forever(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		next.ServeHTTP(w, r)
	})
}

// request is a request for a page, with the language that the page has.
type request struct {
	*http.Request
	*uiLanguage
}

// get returns a parameter of the request's URL.
func (r *request) get(name string) string { return r.URL.Query().Get(name) }

// show serves a screen at a pattern: f returns its title and its data.
func (d *Dashboard) show(path, screen string, f func(*request) (title string, data any, err error)) {
	d.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTime)
		defer cancel()
		asked := &request{r.WithContext(ctx), choose(w, r)}
		title, data, err := f(asked)
		if err != nil {
			d.fail(w, asked, err)
			return
		}
		d.render(w, asked, http.StatusOK, screen, title, data)
	})
}

// statusError is an error with the status of its page.
type statusError struct {
	status int
	error
}

// fail answers with a page that says what went wrong.
func (d *Dashboard) fail(w http.ResponseWriter, r *request, err error) {
	status := statusOf(err)
	d.render(w, r, status, "error", r.t("error."+statusWord(status)), err.Error())
}

func statusOf(err error) int {
	if known, ok := errors.AsType[*statusError](err); ok {
		return known.status
	}
	if missing(err) {
		return http.StatusNotFound
	}
	return http.StatusServiceUnavailable
}

func statusWord(status int) string {
	switch status {
	case http.StatusNotFound:
		return "missing"
	case http.StatusServiceUnavailable:
		return "unavailable"
	}
	return "refused"
}

// layout is what all pages have.
type layout struct {
	Lang, Title, Path, Version string
	// Nav is empty before the sign-in.
	Nav       []link
	Languages []link
	// User is the name of the token of who has signed in; "" without accounts.
	User string
	Data any
}

// link leads to a page.
type link struct {
	Text, To, Lang string
	Current        bool
}

func (d *Dashboard) render(w http.ResponseWriter, r *request, status int, screen, title string, data any) {
	page := layout{Lang: r.code, Title: title, Path: r.URL.RequestURI(), Version: d.version, Data: data}
	for _, l := range languages {
		query := r.URL.Query()
		query.Set("lang", l.code)
		page.Languages = append(page.Languages, link{Text: l.name, To: "?" + query.Encode(), Lang: l.code, Current: l == r.uiLanguage})
	}
	p := access.From(r.Context())
	if p != nil {
		page.User = p.Name
	}
	if p != nil || d.options.Accounts == nil {
		page.Nav = nav(r)
	}
	var out bytes.Buffer
	screens, err := d.screens[r.code]()
	if err == nil {
		err = screens[screen].ExecuteTemplate(&out, "layout", page)
	}
	if err != nil {
		d.options.Logger.Error("dashboard", "screen", screen, "error", err)
		http.Error(w, "this page cannot be shown; the server's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w) // a browser that is gone needs no page
}
