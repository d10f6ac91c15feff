package urlprefix

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// absolute matches what begins with a scheme.
var absolute = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

var errNoPrefix = errors.New("want an http or https URL without user, query and fragment, such as https://api.example.com/hooks")

// Check returns an error for a text that is no prefix: an http or https URL with a host, and
// without user, query, fragment, and what Join refuses in a path.
func Check(prefix string) error {
	_, err := parse(prefix)
	return err
}

func parse(prefix string) (*url.URL, error) {
	u, err := url.Parse(prefix)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Opaque != "":
		return nil, errNoPrefix
	case u.User != nil || strings.ContainsAny(prefix, "?#"):
		return nil, errNoPrefix
	}
	if _, err := strconv.ParseUint(portOf(u), 10, 16); err != nil {
		return nil, errNoPrefix
	}
	return u, checkPath(u.EscapedPath())
}

// Join returns the URL that asked names below a prefix: the prefix if it is empty, a path below the
// prefix, with or without a slash in front, or a whole URL, which must be below the prefix. A path
// and a URL may have a query. The error does not quote asked. Join of a prefix and of what Join
// returned for it returns the same.
func Join(prefix, asked string) (string, error) {
	base, err := parse(prefix)
	if err != nil {
		return "", err
	}
	whole := asked
	switch {
	case asked == "" || asked[0] == '?':
		whole = prefix + asked
	case !absolute.MatchString(asked):
		whole = strings.TrimSuffix(prefix, "/") + "/" + strings.TrimPrefix(asked, "/")
	}
	u, err := url.Parse(whole)
	outside := fmt.Errorf("want a path, or a URL, below %s", prefix)
	switch {
	case err != nil || u.Opaque != "":
		return "", outside
	case u.Scheme != base.Scheme || !strings.EqualFold(u.Hostname(), base.Hostname()) || portOf(u) != portOf(base):
		return "", outside
	case u.User != nil || strings.Contains(whole, "#"):
		return "", fmt.Errorf("%w, without user and fragment", outside)
	case strings.Contains(u.RawQuery, " "):
		return "", errors.New("the query has a space: percent-encode it")
	}
	path, root := u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/")
	if err := checkPath(path); err != nil {
		return "", err
	}
	if path != root && !strings.HasPrefix(path, root+"/") {
		return "", outside
	}
	u.Host = base.Host
	return u.String(), nil
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// checkPath refuses what servers read in different ways: segments that are dots or empty, also with
// parameters behind a semicolon, and those characters, control characters and invalid UTF-8 in
// percent-encoding.
func checkPath(escaped string) error {
	refused := func(what string) error {
		return errors.New("the path has " + what + ", which servers read in different ways: leave it out")
	}
	segments := strings.Split(escaped, "/")
	for i, segment := range segments {
		name, _, _ := strings.Cut(segment, ";")
		switch {
		case name == "." || name == "..":
			return refused("a segment of dots")
		case name == "" && (segment != "" || i > 0 && i < len(segments)-1):
			return refused("an empty segment")
		}
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil || !utf8.ValidString(plain) {
		return refused("a percent-encoding that is no text")
	}
	for rest := escaped; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return nil
		}
		rest = after
		if c, err := url.PathUnescape("%" + rest[:min(2, len(rest))]); err != nil || c < " " || c == "\x7f" || strings.ContainsAny(c, `./\;%`) {
			return refused("a percent-encoded . / \\ ; % or control character")
		}
	}
}
