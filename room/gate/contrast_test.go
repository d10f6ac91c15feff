package gate

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var variable = regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)

// schemes reads the colours of the light and the dark scheme.
func schemes(t *testing.T) map[string]map[string]string {
	t.Helper()
	style, err := files.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(style), "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("there is no dark scheme")
	}
	all := map[string]map[string]string{}
	for name, part := range map[string]string{"light": light, "dark": dark} {
		all[name] = map[string]string{}
		for _, match := range variable.FindAllStringSubmatch(part, -1) {
			all[name][match[1]] = match[2]
		}
	}
	return all
}

// luminance returns the relative luminance of WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil || len(colour) != 7 {
		t.Fatalf("colour %q", colour)
	}
	channel := func(shift uint) float64 {
		c := float64(n>>shift&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(16) + 0.7152*channel(8) + 0.0722*channel(0)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	light, dark := luminance(t, a), luminance(t, b)
	return (max(light, dark) + 0.05) / (min(light, dark) + 0.05)
}

func TestContrast(t *testing.T) {
	if got := contrast(t, "#ffffff", "#000000"); math.Abs(got-21) > 1e-9 {
		t.Fatalf("contrast of black on white = %v", got)
	}
	pairs := []struct {
		front, back string
		least       float64
	}{
		{"text", "card", 4.5}, {"muted", "card", 4.5}, {"accent", "card", 4.5}, {"text", "page", 4.5},
		{"on-accent", "accent", 4.5}, {"on-notice", "notice", 4.5},
		{"accent", "track", 3}, // not text
	}
	for name, colours := range schemes(t) {
		for _, p := range pairs {
			if got := contrast(t, colours[p.front], colours[p.back]); got < p.least {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f; want %v", name, p.front, p.back, got, p.least)
			}
		}
	}
}

// Every colour is a variable, so that the test above sees it.
func TestColoursAreVariables(t *testing.T) {
	style, err := files.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	uses := regexp.MustCompile(`(?:^|[\s;{])(color|background|border-color|outline|border)\s*:\s*([^;]+);`)
	count := 0
	for _, match := range uses.FindAllStringSubmatch(string(style), -1) {
		count++
		if strings.ContainsRune(match[2], '#') || strings.Contains(match[2], "rgb") {
			t.Errorf("%s: %s is not a variable", match[1], match[2])
		}
	}
	if count < 10 {
		t.Fatalf("only %d colours found", count)
	}
}

func TestStyle(t *testing.T) {
	style, err := files.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"prefers-reduced-motion", ":focus-visible", "prefers-color-scheme: dark"} {
		if !strings.Contains(string(style), want) {
			t.Errorf("the style knows nothing of %s", want)
		}
	}
}
