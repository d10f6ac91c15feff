package gate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/room"
)

// The most of what a request is compared with, one after the other.
const (
	// MaxSites is the most sites of a gate.
	MaxSites = 200
	// MaxHosts is the most hosts of a site.
	MaxHosts = 100
	// MaxRules is the most rules of a site, and the most of its Returns.
	MaxRules = 100
)

// Site is what a gate does with the requests for some hosts.
type Site struct {
	// Hosts are host names without port, or *.example.com for all below it. Default: all.
	Hosts []string
	// Rules say which room a request needs; the first that matches holds.
	Rules []SiteRule
	// Room is that of requests that no rule matches; its own routes and bypass then decide
	// whether they need a pass. Default: they need none, and a rule must name a room.
	Room string
	// Upstream gets permitted requests. Default: the handler that Middleware was given.
	Upstream http.Handler
	// Brand is a name that the page shows. Default: none.
	Brand string
	// Logo is an image that the page shows in place of the brand; see [ParseLogo]. Default: none.
	Logo template.URL
	// Theme are colors of the page, each as in "accent=#2f5d62", or "dark-accent=#8cc5c0" for the
	// dark scheme: the variables of page.css. Colors that nobody can read on each other are refused.
	// Default: those of page.css.
	Theme []string
	// Texts are the texts of the page in languages of your own, or in place of those that are built
	// in; see [ParseWords]. Default: none.
	Texts []*Words
	// Template renders the pages; see [Page] and [ParseTemplate]. Default: the page of
	// this package.
	Template *template.Template
	// WaitingStatus is the status of the page of visitors in line: 200, the default, or 503.
	WaitingStatus int
	// Crawlers is what crawlers of search engines get. Default [QueueCrawlers].
	Crawlers Crawlers
	// PassClients is from how many addresses a visitor may be inside at a time, at this gate: IPv4
	// addresses, and IPv6 networks of 64 bits. Others get 429 while the earlier ones are in use, and
	// for at most a minute after. At most MaxPassClients. Default: any number.
	PassClients int
	// Returns are paths to which other sites send visitors back with a form, as after a payment;
	// see [room.Rule] for their form. Browsers send no cookies with it, so the gate answers
	// with a page that sends it again, from this site. The upstream must verify such forms by
	// itself: each looks like one of its own.
	Returns []string
}

// SiteRule matches requests by all of its conditions; an empty one matches all. Clients choose
// their headers and cookies: a condition on them protects nothing.
type SiteRule struct {
	// Path and Method are as those of [room.Rule], but GET covers HEAD. A rule with a room
	// holds for every way to write its path, and one without only if no reading of the
	// path is another one.
	Path, Method string
	// Header is the name of a header, or "Name: value"; Cookie that of a cookie, or
	// "name=value".
	Header, Cookie string
	// Room is what the request needs a pass of, as far as the room's routes and bypass say
	// so; empty: it needs none.
	Room string
}

// Crawlers is what a site does with crawlers of search engines, which it knows by what they
// call themselves. They keep no cookies, so that each request would take a place.
type Crawlers string

// The values of Crawlers.
const (
	// QueueCrawlers treats them as anybody else.
	QueueCrawlers Crawlers = "queue"
	// PassCrawlers lets them through. Anybody may call themselves a crawler.
	PassCrawlers Crawlers = "pass"
	// RefuseCrawlers answers 503 with Retry-After, so that they come again and forget no
	// page.
	RefuseCrawlers Crawlers = "refuse"
)

// door is a room as a gate shows it to visitors.
type door struct {
	room  string
	paths Paths
	// The plain names of the cookies. The line's keeps what only the page and the metrics need: the
	// visitor's first position, why an earlier place was lost, and when it joined. With a pass beside it, the
	// visitor has not come back yet.
	ticketCookie, passCookie, lineCookie string
}

// site is a checked Site.
type site struct {
	Site
	look  *look
	hosts []room.Rule
	rules []rule
	// returnPaths let Returns pass.
	returnPaths room.Settings
	// doors are those of all rooms of the site, by name; main is that of Room, or else of the
	// first rule that has one.
	doors map[string]*door
	main  *door
}

// rule is a checked SiteRule; door is nil if it has no room.
type rule struct {
	SiteRule
	// routes and bypass match its path in every reading, and in each reading.
	routes, bypass room.Settings
	door           *door
}

// SetSites replaces the sites, from the next request on. The error says which is wrong, as in
// "sites[1].hosts[0]: …"; then the sites stay as they were. A template is tried with pages of all
// kinds.
func (g *Gate) SetSites(sites []Site) error {
	if len(sites) == 0 || len(sites) > MaxSites {
		return fmt.Errorf("sites: want 1 to %d", MaxSites)
	}
	made := make([]*site, len(sites))
	for i := range sites {
		var err error
		if made[i], err = g.newSite(sites[i]); err != nil {
			return fmt.Errorf("sites[%d].%w", i, err)
		}
	}
	g.sites.Store(&made)
	return nil
}

func (g *Gate) newSite(of Site) (*site, error) {
	s := &site{Site: of, doors: map[string]*door{}}
	var err error
	if s.look, err = newLook(&of, g.options.Languages); err != nil {
		return nil, err
	}
	if !slices.Contains([]int{0, http.StatusOK, http.StatusServiceUnavailable}, of.WaitingStatus) {
		return nil, fmt.Errorf("waiting_status: %d: want 200 or 503", of.WaitingStatus)
	}
	if !slices.Contains([]Crawlers{"", QueueCrawlers, PassCrawlers, RefuseCrawlers}, of.Crawlers) {
		return nil, fmt.Errorf("crawlers: %q: want queue, pass or refuse", of.Crawlers)
	}
	if of.PassClients < 0 || of.PassClients > MaxPassClients {
		return nil, fmt.Errorf("pass_clients: %d: want 1 to %d, or 0 for any number", of.PassClients, MaxPassClients)
	}
	if len(of.Hosts) > MaxHosts || len(of.Rules) > MaxRules {
		return nil, fmt.Errorf("hosts: want at most %d, and %d rules", MaxHosts, MaxRules)
	}
	for i, host := range of.Hosts {
		r := room.Rule{Host: host}
		if err := checkRule(r); err != nil || host == "" {
			return nil, fmt.Errorf("hosts[%d]: %w", i, cmpError(err, "want a host name"))
		}
		s.hosts = append(s.hosts, r)
	}
	for i, path := range of.Returns {
		r := room.Rule{Path: path}
		if err := checkRule(r); err != nil || path == "" || len(of.Returns) > MaxRules {
			return nil, fmt.Errorf("returns[%d]: %w", i, cmpError(err, fmt.Sprintf("want a path, and at most %d", MaxRules)))
		}
		s.returnPaths.Bypass = append(s.returnPaths.Bypass, r)
	}
	if of.Room != "" {
		if err := s.open(g, of.Room); err != nil {
			return nil, err
		}
	}
	for i := range of.Rules {
		if err := s.add(g, &of.Rules[i]); err != nil {
			return nil, fmt.Errorf("rules[%d].%w", i, err)
		}
	}
	if s.main == nil {
		return nil, errors.New("room: want a room here or in a rule")
	}
	return s, nil
}

// cmpError returns an error, or one of the text if it is nil.
func cmpError(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// add checks a rule and adds it.
func (s *site) add(g *Gate, of *SiteRule) error {
	if *of == (SiteRule{Room: of.Room}) {
		return errors.New("path: want a condition: path, method, header or cookie")
	}
	if err := checkRule(room.Rule{Path: of.Path, Method: of.Method}); err != nil {
		return err
	}
	if name, _, _ := strings.Cut(of.Header, ":"); of.Header != "" && (name == "" || strings.ContainsAny(name, " \t=")) {
		return fmt.Errorf(`header: %.80q: want a name, or "Name: value"`, of.Header)
	}
	if name, _, _ := strings.Cut(of.Cookie, "="); of.Cookie != "" && (name == "" || strings.ContainsAny(name, " \t:;,")) {
		return fmt.Errorf(`cookie: %.80q: want a name, or "name=value"`, of.Cookie)
	}
	r := rule{SiteRule: *of}
	if of.Path != "" {
		r.routes.Routes = []room.Rule{{Path: of.Path}}
		r.bypass.Bypass = r.routes.Routes
	}
	if of.Room != "" {
		if err := s.open(g, of.Room); err != nil {
			return err
		}
		r.door = s.doors[of.Room]
	}
	s.rules = append(s.rules, r)
	return nil
}

// checkRule checks the parts of a rule that are there, as a room does.
func checkRule(r room.Rule) error {
	if r == (room.Rule{}) {
		return nil
	}
	err := room.Settings{Mode: room.Teller, Capacity: 1, Routes: []room.Rule{r}}.WithDefaults().Validate()
	var wrong *room.SettingsError
	if errors.As(err, &wrong) {
		_, part, _ := strings.Cut(wrong.Field, ".")
		return fmt.Errorf("%s: %s", part, wrong.Why)
	}
	return err
}

// open adds the door of a room.
func (s *site) open(g *Gate, name string) error {
	if err := room.ValidName(name); err != nil {
		return fmt.Errorf("room: %w", err)
	}
	if base(name) == CheckPath+"/" {
		return fmt.Errorf("room: %q is a path of the gate's own; give the room another name", name)
	}
	if s.doors[name] != nil {
		return nil
	}
	d := &door{
		room: name, paths: pathsOf(name),
		ticketCookie: "sluice_ticket_" + name, passCookie: "sluice_pass_" + name, lineCookie: "sluice_line_" + name,
	}
	if g.streams == nil {
		d.paths.Watch = ""
	}
	s.doors[name] = d
	if s.main == nil {
		s.main = d
	}
	return nil
}

// siteOf returns the first site that has a host; nil if there is none.
func (g *Gate) siteOf(host string) *site {
	for _, s := range *g.sites.Load() {
		if len(s.hosts) == 0 || slices.ContainsFunc(s.hosts, func(r room.Rule) bool { return r.Matches(host, "", "") }) {
			return s
		}
	}
	return nil
}

// errAmbiguous: upstreams read the path in different ways, and rules of the site send these to
// different rooms.
var errAmbiguous = errors.New("the path of this request can be read in two ways that need passes of two rooms; write it without //, .., ; and \\, in the case of the rules")

// doorOf returns the door of the room whose pass a request may need; needs reports whether a rule
// lets it through without one.
func (s *site) doorOf(r *http.Request) (d *door, needs bool, err error) {
	for i := range s.rules {
		rule := &s.rules[i]
		some, all := rule.matches(r)
		switch {
		case rule.door == nil && all:
			if d == nil {
				return s.main, false, nil
			}
			return d, true, nil
		case rule.door == nil || !some:
		case d != nil && d != rule.door:
			return nil, false, errAmbiguous
		default:
			if d = rule.door; all {
				return d, true, nil
			}
		}
	}
	switch {
	case d == nil:
		return s.main, s.Room != "", nil
	case s.Room != "" && d != s.main:
		return nil, false, errAmbiguous
	}
	return d, true, nil
}

// matches reports whether any reading, and whether each reading of a request's path matches.
func (r *rule) matches(request *http.Request) (some, all bool) {
	if !r.matchesMethod(request.Method) || !r.matchesHeader(request) || !r.matchesCookie(request) {
		return false, false
	}
	if r.Path == "" {
		return true, true
	}
	path := request.URL.Path
	return r.routes.NeedsPass("", path, ""), !r.bypass.NeedsPass("", path, "")
}

func (r *rule) matchesMethod(method string) bool {
	return r.Method == "" || r.Method == method || r.Method == http.MethodGet && method == http.MethodHead
}

func (r *rule) matchesHeader(request *http.Request) bool {
	if r.Header == "" {
		return true
	}
	name, want, valued := strings.Cut(r.Header, ":")
	values := request.Header.Values(name)
	if !valued {
		return len(values) > 0
	}
	return slices.Contains(values, strings.TrimSpace(want))
}

func (r *rule) matchesCookie(request *http.Request) bool {
	if r.Cookie == "" {
		return true
	}
	name, want, valued := strings.Cut(r.Cookie, "=")
	return slices.ContainsFunc(request.CookiesNamed(name), func(c *http.Cookie) bool { return !valued || c.Value == want })
}

// crawlers are what search engines, and services that show a page's title, call themselves, in
// lower case.
var crawlers = []string{
	"googlebot", "google-inspectiontool", "storebot-google", "bingbot", "yandexbot", "yandex.com/bots", "duckduckbot", "baiduspider", "applebot",
	"slurp", "yeti/", "daumoa", "seznambot", "petalbot", "sogou", "qwantify", "facebookexternalhit", "twitterbot", "linkedinbot", "kakaotalk-scrap",
}

// isCrawler reports whether a request calls itself a crawler.
func isCrawler(r *http.Request) bool {
	agent := r.Header.Get("User-Agent")
	if len(agent) > 1_000 {
		return false
	}
	agent = strings.ToLower(agent)
	return slices.ContainsFunc(crawlers, func(name string) bool { return strings.Contains(agent, name) })
}
