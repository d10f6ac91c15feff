package gate

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
	"golang.org/x/text/language"
)

// MaxLogo is the most bytes of a logo: it is a part of each page, so that a page is one answer.
const MaxLogo = 32 << 10

// look is how the pages of a site look.
type look struct {
	page  *template.Template
	words *chooser
	brand string
	logo  template.URL
	theme template.CSS
}

// newLook checks how the pages of a site look. A template is tried with pages of all kinds.
func newLook(of *Site, languages []language.Tag) (*look, error) {
	l := &look{page: of.Template, brand: of.Brand, logo: of.Logo}
	var err error
	if l.words, err = newChooser(languages, of.Texts); err != nil {
		return nil, fmt.Errorf("texts: %w", err)
	}
	if l.theme, err = parseTheme(of.Theme); err != nil {
		return nil, fmt.Errorf("theme: %w", err)
	}
	if l.page == nil {
		l.page = builtIn
	} else if err := checkTemplate(l.page, l.words.words); err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	return l, nil
}

// dress gives a page the look.
func (l *look) dress(page *Page) { page.Brand, page.Logo, page.Theme = l.brand, l.logo, l.theme }

// logoTypes are the images that browsers show, by extension.
var logoTypes = map[string]string{".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}

// ParseLogo returns an image as a URL, for [Site].Logo. Its type is that of the file's extension:
// .svg, .png, .jpg, .webp or .gif. It has at most MaxLogo bytes.
func ParseLogo(file string, image []byte) (template.URL, error) {
	kind := logoTypes[strings.ToLower(path.Ext(file))]
	switch {
	case kind == "":
		return "", fmt.Errorf("%s: want a file that ends in .svg, .png, .jpg, .webp or .gif", file)
	case len(image) == 0 || len(image) > MaxLogo:
		return "", fmt.Errorf("%s: want 1 to %d bytes: each page has it", file, MaxLogo)
	}
	return template.URL("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(image)), nil //nolint:gosec // of the operator's file, in base64
}

// darkPrefix begins the names of a theme's colors for the dark scheme.
const darkPrefix = "dark-"

var (
	color    = regexp.MustCompile(`^#[0-9a-f]{6}$`)
	variable = regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)
)

// scheme are colors by the names of their variables in page.css.
type scheme map[string]string

// lightScheme and darkScheme are the colors of page.css.
var lightScheme, darkScheme = parseSchemes()

func parseSchemes() (light, dark scheme) {
	style, err := files.ReadFile("page.css")
	if err != nil {
		panic("gate: " + err.Error())
	}
	before, after, _ := strings.Cut(string(style), "@media (prefers-color-scheme: dark)")
	read := func(part string) scheme {
		s := scheme{}
		for _, match := range variable.FindAllStringSubmatch(part, -1) {
			s[match[1]] = match[2]
		}
		return s
	}
	return read(before), read(after)
}

// parseTheme returns the style of a theme: colors, each as in accent=#2f5d62, or
// dark-accent=#8cc5c0 for browsers that ask for dark pages. A page that cannot be read is refused.
func parseTheme(colors []string) (template.CSS, error) {
	own := map[bool]scheme{}
	for _, text := range colors {
		name, value, _ := strings.Cut(text, "=")
		plain, dark := strings.CutPrefix(name, darkPrefix)
		value = strings.ToLower(value)
		switch {
		case lightScheme[plain] == "":
			return "", fmt.Errorf("%q: want one of %s, or with %s before it", name, strings.Join(lightScheme.names(), ", "), darkPrefix)
		case !color.MatchString(value):
			return "", fmt.Errorf("%q: want a color such as %s=#2f5d62", text, name)
		case own[dark][plain] != "":
			return "", fmt.Errorf("%q comes twice", name)
		case own[dark] == nil:
			own[dark] = scheme{}
		}
		own[dark][plain] = value
	}
	var style strings.Builder
	for _, s := range []struct {
		name, prefix string
		base, own    scheme
	}{{"light", "", lightScheme, own[false]}, {"dark", darkPrefix, darkScheme, own[true]}} {
		if len(s.own) == 0 {
			continue
		}
		if err := s.own.readable(s.base, s.prefix); err != nil {
			return "", err
		}
		fmt.Fprintf(&style, "@media (prefers-color-scheme: %s) { :root {", s.name)
		for _, name := range s.own.names() {
			fmt.Fprintf(&style, " --%s: %s;", name, s.own[name])
		}
		style.WriteString(" } }\n")
	}
	return template.CSS(style.String()), nil //nolint:gosec // known names and colors
}

// contrasts are the least contrasts of WCAG 2, level AA, between colors that meet on a page.
var contrasts = []struct {
	front, back string
	least       float64
}{
	{"text", "card", 4.5},
	{"muted", "card", 4.5},
	{"accent", "card", 4.5},
	{"text", "page", 4.5},
	{"on-accent", "accent", 4.5},
	{"on-notice", "notice", 4.5},
	{"accent", "track", 3}, // not text
}

// readable checks the contrasts of a scheme with the colors that it leaves as they are.
func (s scheme) readable(base scheme, prefix string) error {
	of := func(name string) string {
		if own := s[name]; own != "" {
			return own
		}
		return base[name]
	}
	for _, c := range contrasts {
		front, back := of(c.front), of(c.back)
		if got := contrast(front, back); got < c.least {
			return fmt.Errorf("%s%s %s on %s%s %s has a contrast of %.1f: want %v or more, so that everybody can read it",
				prefix, c.front, front, prefix, c.back, back, got, c.least)
		}
	}
	return nil
}

func (s scheme) names() []string { return slices.Sorted(maps.Keys(s)) }

// contrast returns the contrast of two colors by WCAG 2: 1 to 21.
func contrast(a, b string) float64 {
	light, dark := luminance(a), luminance(b)
	return (max(light, dark) + 0.05) / (min(light, dark) + 0.05)
}

// luminance returns the relative luminance of WCAG 2.
func luminance(color string) float64 {
	n, _ := strconv.ParseUint(color[1:], 16, 32) // it matches color
	channel := func(shift uint) float64 {
		c := float64(n>>shift&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(16) + 0.7152*channel(8) + 0.0722*channel(0)
}
