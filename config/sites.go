package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sitesKey is the list of the file with a mapping for each site.
const sitesKey = "gate.sites"

// Site is what a gate does for some hosts; see gate.Site.
type Site struct {
	// Hosts are host names, or *.example.com; empty: all.
	Hosts List
	// Room is that of requests that no rule matches; empty: they need no pass.
	Room string
	// Upstream is the URL of the server behind the gate; empty: another proxy has it, and asks
	// the gate. UpstreamHost is sent as the host; empty: that of the visitor's request.
	Upstream, UpstreamHost string
	// Template is the path of the waiting page's template; empty: the one built in.
	Template string
	Brand    string
	// Texts are the paths of files of texts, Logo is that of an image, and Theme are colors.
	Texts, Theme List
	Logo         string
	// WaitingStatus is the status of the waiting page.
	WaitingStatus int
	// Crawlers is queue, pass or refuse.
	Crawlers string
	// PassClients is from how many addresses a visitor may be inside at a time.
	PassClients int
	// Returns are paths to which other sites send forms.
	Returns List
	Rules   []SiteRule
}

// SiteRule says which room the requests that it matches need; see gate.SiteRule.
type SiteRule struct{ Path, Method, Header, Cookie, Room string }

// siteSchema returns the settings of a site.
func siteSchema(s *Site) []Setting {
	return []Setting{
		{Key: "hosts", field: &s.Hosts, Usage: "host names without port, or *.example.com for all below it; without it: all hosts"},
		{Key: "room", field: &s.Room, Usage: "name of the room of requests that no rule matches; without it: they need no pass"},
		{Key: "upstream", field: &s.Upstream, check: optional(checkUpstream), Usage: "URL of the server behind the gate; without it: another proxy has the site, and asks the gate (docs/room/proxies.md)"},
		{Key: "upstream_host", field: &s.UpstreamHost, check: optional(checkHost), Usage: "host that is sent to the upstream; without it: the host of the visitor's request"},
		{Key: "template", field: &s.Template, check: optional(checkFile), Usage: "path of a template of the waiting page, instead of the built-in one"},
		{Key: "brand", field: &s.Brand, check: optional(checkBrand), Usage: "name that the waiting page shows"},
		{Key: "texts", field: &s.Texts, check: each(checkFile), Usage: "paths of files with texts of the waiting page, as gate.texts"},
		{Key: "theme", field: &s.Theme, check: each(checkColor), Usage: "colors of the waiting page, as gate.theme"},
		{Key: "logo", field: &s.Logo, check: optional(checkFile), Usage: "path of an image that the waiting page shows in place of the brand, as gate.logo"},
		{Key: "waiting_status", field: &s.WaitingStatus, Default: "200", check: oneOf("200", "503"), Usage: "status of the waiting page: 200, or 503 so that nothing takes it for the site's"},
		{Key: "crawlers", field: &s.Crawlers, Default: "queue", check: oneOf("queue", "pass", "refuse"), Usage: "what crawlers of search engines get: queue: what everybody gets; pass: the site, as does anybody who calls itself one; refuse: 503 with Retry-After"},
		{Key: "pass_clients", field: &s.PassClients, Default: "0", check: upTo(0, 100), Usage: "from how many addresses a visitor may be inside at a time, at each gate: IPv4 addresses, and IPv6 networks of 64 bits; 0: any number"},
		{Key: "returns", field: &s.Returns, Usage: "paths to which other sites send visitors back with a form that the site verifies, such as /payment/return: it reaches the site with the visitor's cookies"},
	}
}

// siteRuleSchema returns the settings of a rule of a site.
func siteRuleSchema(r *SiteRule) []Setting {
	return []Setting{
		{Key: "path", field: &r.Path, Usage: "path, or /checkout/* for all below it and itself"},
		{Key: "method", field: &r.Method, Usage: "HTTP method; GET is HEAD too"},
		{Key: "header", field: &r.Header, Usage: `name of a header, or "Name: value"; clients choose their headers`},
		{Key: "cookie", field: &r.Cookie, Usage: `name of a cookie, or "name=value"; clients choose their cookies`},
		{Key: "room", field: &r.Room, Usage: "name of the room whose pass the request needs; without it: it needs none"},
	}
}

// AllSites returns the sites of the gate: those of the file, or the one of gate.room and
// gate.upstream.
func (g *Gate) AllSites() []Site {
	if len(g.Sites) > 0 {
		return g.Sites
	}
	return []Site{{Room: g.Room, Upstream: g.Upstream, UpstreamHost: g.UpstreamHost, Template: g.Template, Brand: g.Brand, Texts: g.Texts, Theme: g.Theme, Logo: g.Logo}}
}

// OfSites returns an error of gate.Gate about its sites as one that says where the site is set.
func (c *Config) OfSites(err error) error {
	key, why, _ := strings.Cut(err.Error(), ": ")
	if key = "gate." + key; len(c.Gate.Sites) == 0 {
		return fmt.Errorf("gate: %w", err)
	}
	at := key
	for c.sources[at] == "" && strings.Contains(at, ".") {
		at = at[:strings.LastIndexByte(at, '.')]
	}
	return &Error{Key: key, Source: c.Source(at), Why: why}
}

// sites reads the sites of the file.
func (f *fileReader) sites(list entry) error {
	return readRows(f, list, &f.config.Gate.Sites, func(row entry, s *Site) error {
		for _, setting := range siteSchema(s) {
			if setting.Default != "" {
				_ = setting.parse(setting.Default) // it is constant
			}
		}
		return f.row(row, siteSchema(s), "rules", func(rules entry) error {
			return readRows(f, rules, &s.Rules, func(row entry, r *SiteRule) error {
				return f.row(row, siteRuleSchema(r), "", nil)
			})
		})
	})
}

// readRows reads a list of mappings. The key of a row is that of the list, with its place.
func readRows[T any](f *fileReader, list entry, into *[]T, read func(entry, *T) error) error {
	if list.value.Kind != yaml.SequenceNode {
		return f.wrong(list.value, list.key, "want a list of mappings, each beginning with a dash")
	}
	if len(list.value.Content) > maxList {
		return f.wrong(list.value, list.key, fmt.Sprintf("want at most %d", maxList))
	}
	*into = make([]T, len(list.value.Content))
	for i, node := range list.value.Content {
		row := entry{key: fmt.Sprintf("%s[%d]", list.key, i), name: node, value: resolved(node)}
		f.config.sources[row.key] = f.source(node)
		if err := read(row, &(*into)[i]); err != nil {
			return err
		}
	}
	f.config.sources[list.key] = f.source(list.name)
	return nil
}

// row reads the settings of a row; more reads the list of a name within it.
func (f *fileReader) row(row entry, schema []Setting, name string, more func(entry) error) error {
	entries, err := f.entries(row.value, row.key)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name != "" && e.name.Value == name {
			err = more(e)
		} else {
			err = f.rowEntry(row.key, e, schema, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fileReader) rowEntry(row string, e entry, schema []Setting, name string) error {
	var keys []string
	for _, s := range schema {
		if s.Key == e.name.Value {
			s.Key = e.key
			return f.setting(&s, e)
		}
		keys = append(keys, row+"."+s.Key)
	}
	if name != "" {
		keys = append(keys, row+"."+name)
	}
	return f.unknown(e, keys)
}

// addSites adds the sites as they were set.
func (c *Config) addSites(gate *yaml.Node) {
	sites := addSequence(gate, "sites")
	for i := range c.Gate.Sites {
		s, key := &c.Gate.Sites[i], fmt.Sprintf("%s[%d]", sitesKey, i)
		site := c.addRow(sites, key, siteSchema(s))
		if len(s.Rules) == 0 {
			continue
		}
		rules := addSequence(site, "rules")
		for j := range s.Rules {
			c.addRow(rules, fmt.Sprintf("%s.rules[%d]", key, j), siteRuleSchema(&s.Rules[j]))
		}
	}
}

func (c *Config) addRow(list *yaml.Node, key string, schema []Setting) *yaml.Node {
	row := &yaml.Node{Kind: yaml.MappingNode}
	list.Content = append(list.Content, row)
	for _, s := range schema {
		source, set := c.sources[key+"."+s.Key]
		if values, isList := s.field.(*List); isList && set {
			addList(row, s.Key, *values, source)
		} else if set {
			addValue(row, s.Key, unitOf(s.field), format(s.field), source)
		}
	}
	return row
}

func addSequence(parent *yaml.Node, name string) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	parent.Content = append(parent.Content, text(name), list)
	return list
}
