package room

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A rule for GET covers HEAD.
const (
	methodGet  = "GET"
	methodHead = "HEAD"
)

// Matches reports whether a rule matches a request. Host may have a port, and its case
// does not matter; path is decoded, without the query.
func (r Rule) Matches(host, path, method string) bool {
	return (r.Method == "" || r.Method == method) && r.matchesHost(bareHost(host)) && r.matchesPath(path)
}

// NeedsPass reports whether a request needs a pass at a gate: Routes say so, or
// are empty, and no Bypass matches. Requests whose path can be read in more than one
// way ("/free/../paid", "//paid", "/paid;x=1", "/free/..\paid", "/PAID") need one if any
// reading does, and HEAD does where GET does. Host is what the client says: a route of
// one host holds if the service answers nothing under another name.
func (s Settings) NeedsPass(host, path, method string) bool {
	if len(s.Routes) == 0 && len(s.Bypass) == 0 {
		return true
	}
	host, plain := bareHost(host), plainPath(path)
	needs := len(s.Routes) == 0
	for i := range s.Routes {
		r := &s.Routes[i]
		if needs {
			break
		}
		needs = (r.Method == "" || r.Method == method || r.Method == methodGet && method == methodHead) && r.matchesHost(host) &&
			(r.matchesPath(path) || r.matchesPlain(plain, true))
	}
	if !needs {
		return false
	}
	for i := range s.Bypass {
		r := &s.Bypass[i]
		if (r.Method == "" || r.Method == method) && r.matchesHost(host) && r.matchesPath(path) && r.matchesPlain(plain, false) {
			return false
		}
	}
	return true
}

// matchesHost takes a result of bareHost.
func (r *Rule) matchesHost(host string) bool {
	if r.Host == "" {
		return true
	}
	if below, ok := strings.CutPrefix(r.Host, "*."); ok {
		name, found := cutSuffixFold(host, below)
		return found && len(name) > 1 && name[len(name)-1] == '.'
	}
	return strings.EqualFold(r.Host, host)
}

func cutSuffixFold(text, suffix string) (before string, found bool) {
	at := len(text) - len(suffix)
	if at < 0 || !strings.EqualFold(text[at:], suffix) {
		return text, false
	}
	return text[:at], true
}

func (r *Rule) matchesPath(path string) bool {
	if above, ok := strings.CutSuffix(r.Path, "/*"); ok {
		rest, found := strings.CutPrefix(path, above)
		return found && (rest == "" || rest[0] == '/')
	}
	return r.Path == "" || r.Path == path
}

// matchesPlain takes a result of plainPath, which never ends with "/". With anyCase it
// ignores case, as many services do.
func (r *Rule) matchesPlain(plain string, anyCase bool) bool {
	if plain == "/" {
		plain = ""
	}
	equal := func(a, b string) bool { return a == b || anyCase && strings.EqualFold(a, b) }
	if above, ok := strings.CutSuffix(r.Path, "/*"); ok {
		return len(plain) >= len(above) && equal(plain[:len(above)], above) && (len(plain) == len(above) || plain[len(above)] == '/')
	}
	return r.Path == "" || equal(strings.TrimSuffix(r.Path, "/"), plain)
}

// bareHost returns a host without its port and a final dot.
func bareHost(host string) string {
	if at := strings.LastIndexByte(host, ':'); at >= 0 && (strings.IndexByte(host, ':') == at || host[at-1] == ']') {
		host = host[:at]
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return strings.TrimSuffix(host, ".")
}

// plainPath returns how a lenient service may read a path: backslashes as slashes,
// without parameters after ";", without empty, "." and ".." segments.
func plainPath(text string) string {
	text = strings.ReplaceAll(text, `\`, "/")
	if strings.IndexByte(text, ';') >= 0 {
		segments := strings.Split(text, "/")
		for i, segment := range segments {
			segments[i], _, _ = strings.Cut(segment, ";")
		}
		text = strings.Join(segments, "/")
	}
	return path.Clean("/" + text)
}

// The most bytes of the parts of a rule.
const (
	maxRuleHost   = 253
	maxRulePath   = 512
	maxRuleMethod = 32
)

// wrong returns which part of a rule is wrong, and why.
func (r *Rule) wrong() (part, why string) {
	if *r == (Rule{}) {
		return "", "is empty, and would match everything; give host, path or method"
	}
	if why := wrongHost(r.Host); why != "" {
		return ".host", why
	}
	if why := wrongRulePath(r.Path); why != "" {
		return ".path", why
	}
	if len(r.Method) > maxRuleMethod || strings.Trim(r.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
		return ".method", fmt.Sprintf("is %.40q; give an HTTP method in capital letters, as in GET", r.Method)
	}
	return "", ""
}

func wrongHost(host string) string {
	const give = "give a host name without port, as in shop.example.com, or *.example.com for all below it"
	name := strings.TrimPrefix(host, "*.")
	if _, err := netip.ParseAddr(host); host == "" || err == nil {
		return ""
	}
	if len(host) > maxRuleHost {
		return fmt.Sprintf("has %d bytes, at most %d can be; %s", len(host), maxRuleHost, give)
	}
	for label := range strings.SplitSeq(name, ".") {
		valid := label != "" && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-'
		for i := 0; valid && i < len(label); i++ {
			c := label[i] | 0x20
			valid = c >= 'a' && c <= 'z' || label[i] >= '0' && label[i] <= '9' || label[i] == '-' || label[i] == '_'
		}
		if !valid {
			return fmt.Sprintf("is %.80q; %s", host, give)
		}
	}
	return ""
}

func wrongRulePath(text string) string {
	const give = "give one as in /cart, or /checkout/* for all below it and itself"
	switch above, _ := strings.CutSuffix(text, "/*"); {
	case text == "":
		return ""
	case len(text) > maxRulePath:
		return fmt.Sprintf("has %d bytes, at most %d can be", len(text), maxRulePath)
	case text[0] != '/':
		return fmt.Sprintf("is %.80q, which does not begin with /; %s", text, give)
	case strings.Contains(above, "*"):
		return fmt.Sprintf("is %.80q, where * is not the last part; %s", text, give)
	case strings.ContainsAny(text, `?#;\`):
		return fmt.Sprintf("is %.80q; paths are compared decoded, without query and parameters: %s", text, give)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Sprintf("is %.80q; give printable text in UTF-8", text)
	case strings.Contains(text, "//") || above != "" && above != "/" && plainPath(above) != strings.TrimSuffix(above, "/"):
		return fmt.Sprintf("is %.80q, and requests are compared without empty, . and .. parts; %s", text, give)
	}
	return ""
}
