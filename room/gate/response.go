package gate

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

// The request headers by which the upstream knows a visitor who is inside. Requests that need no
// pass have none of them.
const (
	// PassHeader has the pass.
	PassHeader = "Sluice-Pass"
	// VisitorHeader has the visitor's number in the room.
	VisitorHeader = "Sluice-Visitor"
	// RoomHeader has the room's name.
	RoomHeader = "Sluice-Room"
)

// WaitHeader is the response header with the room of a request that the gate has held: the
// upstream has not seen it.
const WaitHeader = "Sluice-Wait"

// visitorHeaders are all of them.
var visitorHeaders = []string{PassHeader, VisitorHeader, RoomHeader}

// problem is an error in JSON, as in RFC 9457.
type problem struct {
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Code   string      `json:"code"`
	Reason room.Reason `json:"reason,omitempty"`
}

// codeKinds are the pages on which a code helps.
var codeKinds = []Kind{KindWaiting, KindOpening, KindDrawing, KindUninvited, KindCode}

// newPage returns a page for this request.
func (v *visit) newPage(kind Kind) *Page {
	page := v.words().page(kind)
	v.site.look.dress(page)
	page.Paths = v.door.paths
	page.Nonce = newNonce()
	page.Return = localPath(v.r.URL.RequestURI())
	page.Codes = v.settings.Codes && slices.Contains(codeKinds, kind)
	if v.r.Method != http.MethodGet && v.r.Method != http.MethodHead {
		page.Posted = true
		page.Notices = append(page.Notices, v.words().NotSent)
	}
	return page
}

// localPath returns a path with query that stays on this site; "/" for anything else.
func localPath(text string) string {
	if len(text) > MaxForm || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == '\\' || c == 0x7f }) {
		return "/"
	}
	return text
}

// respond answers in the form that the request wants: a page, a problem or a short text.
func (v *visit) respond(status int, p problem, page *Page) {
	switch v.kind {
	case navigation:
		v.show(status, page)
	case program:
		p.Status, p.Title = status, http.StatusText(status)
		body, err := json.Marshal(p)
		if err != nil {
			panic("gate: a problem cannot be written: " + err.Error())
		}
		v.writeJSON(status, "application/problem+json", body)
	case part:
		header := v.w.Header()
		if status == http.StatusServiceUnavailable && header.Get("Retry-After") == "" {
			v.retryAfter(5 * time.Second)
		}
		header.Set("Content-Type", "text/plain; charset=utf-8")
		p.Detail = cmp.Or(p.Detail, "waiting room: open the page itself to get in")
		v.write(status, []byte(p.Detail+"\n"))
	}
}

// show writes a page.
func (v *visit) show(status int, page *Page) {
	if c, asked := v.w.(*verdict); !asked || !c.bare { // otherwise the page follows at PagePath
		v.gate.metrics.pages.WithLabelValues(v.door.room, string(page.Kind)).Inc()
	}
	body, err := render(v.site.look.page, page)
	if err != nil {
		v.gate.logger.ErrorContext(v.r.Context(), "the template failed", "kind", page.Kind, "error", err)
		if body, err = render(builtIn, page); err != nil {
			panic("gate: the page cannot be written: " + err.Error())
		}
	}
	header := v.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", page.Lang)
	header.Set("Content-Security-Policy", v.policy(page))
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Robots-Tag", "noindex")
	v.write(status, body)
}

// policy is the page's Content-Security-Policy. A custom template may have styles and
// images from elsewhere; scripts always need the nonce.
func (v *visit) policy(page *Page) string {
	nonce := " 'nonce-" + page.Nonce + "'"
	origins := ""
	if page.Widget != nil && len(page.Widget.Origins) > 0 {
		origins = " " + strings.Join(page.Widget.Origins, " ")
	}
	// There is no form-action: browsers apply it to redirects too, and an upstream may
	// redirect a visitor who has just joined by a form to another site, to log in for
	// example.
	common := "script-src" + nonce + origins + "; connect-src 'self'" + origins + "; frame-src 'self'" + origins +
		"; base-uri 'none'; object-src 'none'; frame-ancestors 'self'"
	if v.site.look.page == builtIn {
		style := nonce
		if origins != "" {
			style = " 'unsafe-inline'" + origins // Widgets style themselves; a nonce would switch that off.
		}
		return "default-src 'none'; style-src" + style + "; img-src 'self' data:" + origins + "; " + common
	}
	return common
}

func (v *visit) writeJSON(status int, contentType string, body []byte) {
	v.w.Header().Set("Content-Type", contentType)
	v.write(status, body)
}

// write sends an answer of the gate's own, which must not be stored.
func (v *visit) write(status int, body []byte) {
	v.sendCookies()
	header := v.w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(body) // The client has gone if it fails.
	}
}

func (v *visit) retryAfter(after time.Duration) {
	v.w.Header().Set("Retry-After", strconv.Itoa(seconds(after)))
}

// seconds rounds up to whole seconds, at least one.
func seconds(d time.Duration) int { return int(max(1, ceil(d, time.Second))) }
