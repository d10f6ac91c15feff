package gate

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// CheckPath is where a proxy asks, for each request that it got, whether to send it on: 200
	// with the headers of a visitor who is inside, and anything else is the answer for the
	// client, which would be that of the gate in the proxy's place. See forwarded for what the
	// proxy has to say.
	CheckPath = ownPrefix + "check"
	// PagePath is where a proxy that asked CheckPath with ?on=status, and was answered 401, gets
	// the page for the client.
	PagePath = ownPrefix + "page"
	// CookieHeader and a number from 1 is the name of a header that has one Set-Cookie of the
	// check, for proxies that read but one value of each header.
	CookieHeader = "Sluice-Set-Cookie-"
	// maxHanded is the most of them: the ticket, the pass and the note of the page.
	maxHanded = 3
)

// check answers a proxy.
func (g *Gate) check(w http.ResponseWriter, r *http.Request) {
	s, asked := g.asked(w, r)
	if s == nil {
		g.metrics.checked(nil, nil)
		return
	}
	c := &verdict{ResponseWriter: w, bare: r.URL.Path == CheckPath && r.URL.Query().Get("on") == "status"}
	g.metrics.checked(g.decide(s, c, asked, nil, http.HandlerFunc(c.pass)), c)
}

// checkedPage shows the page of a client whom check has answered 401. The cookies that check has
// set come with the request, so that a newcomer is not one again.
func (g *Gate) checkedPage(w http.ResponseWriter, r *http.Request) {
	s, asked := g.asked(w, r)
	if s == nil {
		return
	}
	var handed []*http.Cookie
	asked.Header = asked.Header.Clone()
	for n := 1; n <= maxHanded; n++ {
		c, err := http.ParseSetCookie(r.Header.Get(CookieHeader + strconv.Itoa(n)))
		if err != nil {
			continue
		}
		handed = append(handed, c)
		if c.MaxAge > 0 {
			// The first of two cookies of one name counts.
			asked.Header.Set("Cookie", c.Name+"="+c.Value+"; "+asked.Header.Get("Cookie"))
		}
	}
	// The visitor may have been called since the check.
	g.decide(s, w, asked, handed, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", localPath(r.URL.RequestURI()))
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusSeeOther)
	}))
}

// asked returns the request that a trusted proxy asks about, with its site; others, and those that
// do not say which, are refused.
func (g *Gate) asked(w http.ResponseWriter, r *http.Request) (*site, *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !trustedPeer(r, g.options.TrustedProxies) {
		http.Error(w, r.RemoteAddr+" is no trusted proxy of this gate: add its address to gate.trusted_proxies", http.StatusForbidden)
		return nil, nil
	}
	asked, err := forwarded(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, nil
	}
	if asked.Method == http.MethodConnect {
		http.Error(w, "a tunnel has no path to check", http.StatusMethodNotAllowed)
		return nil, nil
	}
	s := g.siteOf(asked.Host)
	if s == nil {
		g.misdirected(w, asked)
	}
	return s, asked
}

// forwarded rebuilds the request that a proxy asks about, as the client sent it: its path with
// query from X-Forwarded-Uri, X-Original-URI, X-Original-URL or what follows CheckPath; its
// method from X-Forwarded-Method or X-Original-Method, or else that of r; its host from
// X-Forwarded-Host or X-Original-URL, or else that of r. Proxies pass on what a client writes
// into headers that they do not set themselves: so all that are there must say the same.
func forwarded(r *http.Request) (*http.Request, error) {
	uris, hosts := valuesOf(r, "X-Forwarded-Uri", "X-Original-Uri"), valuesOf(r, "X-Forwarded-Host")
	if below, found := strings.CutPrefix(r.URL.RequestURI(), CheckPath+"/"); found {
		uris = append(uris, "/"+below)
	}
	for _, whole := range valuesOf(r, "X-Original-Url") {
		u, err := url.Parse(whole)
		if err != nil || u.Host == "" {
			return nil, errors.New("X-Original-URL: want a URL with a host")
		}
		uris, hosts = append(uris, u.RequestURI()), append(hosts, u.Host)
	}
	uri, err := agreed("path", uris)
	if err != nil {
		return nil, err
	}
	host, err := agreed("host", hosts)
	if err != nil {
		return nil, err
	}
	method, err := agreed("method", valuesOf(r, "X-Forwarded-Method", "X-Original-Method"))
	if err != nil {
		return nil, err
	}
	if uri == "" {
		return nil, errors.New("which request? Let the proxy send its path with query in X-Forwarded-Uri or X-Original-URI")
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || uri[0] != '/' {
		return nil, errors.New("the path of the request: want one that begins with /")
	}
	asked := new(http.Request)
	*asked = *r
	asked.Method, asked.Host = cmp.Or(method, r.Method), cmp.Or(host, r.Host)
	asked.URL, asked.RequestURI = u, uri
	asked.Body, asked.ContentLength, asked.TransferEncoding = http.NoBody, 0, nil
	return asked, nil
}

func valuesOf(r *http.Request, names ...string) (values []string) {
	for _, name := range names {
		values = append(values, r.Header[name]...)
	}
	return values
}

// agreed returns the one value that is there; "" if there is none.
func agreed(what string, values []string) (string, error) {
	values = slices.Compact(values)
	if len(values) > 1 {
		return "", fmt.Errorf("the headers give more than one %s of the request: %.100q; let the proxy remove those that it does not set", what, values)
	}
	return strings.Join(values, ""), nil
}

// verdict turns the answer to a visit into one for a proxy.
type verdict struct {
	http.ResponseWriter
	// bare asks for 401 without a page, for proxies that cannot send a page on.
	bare bool
	// passed reports whether the request may go on, inside that its visitor has a pass.
	passed, inside bool
	wrote          bool
}

// outcome is the verdict in a word, for metrics.
func (c *verdict) outcome() string {
	switch {
	case !c.passed:
		return "held"
	case c.inside:
		return "inside"
	}
	return "no_pass"
}

// pass is what is behind the gate.
func (c *verdict) pass(w http.ResponseWriter, r *http.Request) {
	c.passed, c.inside = true, r.Header.Get(VisitorHeader) != ""
	header := w.Header()
	for _, name := range visitorHeaders {
		if values := r.Header[name]; len(values) > 0 {
			header[name] = values
		} else {
			// Other proxies remove what a client claims to be by themselves.
			header.Add("X-Envoy-Auth-Headers-To-Remove", name)
		}
	}
	w.WriteHeader(http.StatusOK)
}

// WriteHeader implements http.ResponseWriter. The pages of visitors in line have a status that
// proxies do not take for a permission, nor, as Envoy does with 5xx, for a failure.
func (c *verdict) WriteHeader(status int) {
	if c.wrote {
		return
	}
	c.wrote = true
	header := c.Header()
	header.Del("Content-Length") // the proxy may ask by GET about a HEAD, whose answer has no body
	if c.passed || c.bare {
		for i, line := range header["Set-Cookie"] {
			if i < maxHanded {
				header.Set(CookieHeader+strconv.Itoa(i+1), line)
			}
		}
	}
	switch {
	case c.passed:
		header.Set("Content-Length", "0")
	case c.bare:
		status = http.StatusUnauthorized
		for name := range header {
			if strings.HasPrefix(name, "Content-") {
				header.Del(name)
			}
		}
		header.Set("Content-Length", "0")
	case status < http.StatusMultipleChoices:
		status = http.StatusTooManyRequests
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *verdict) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.bare {
		return len(p), nil
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *verdict) Unwrap() http.ResponseWriter { return c.ResponseWriter }
