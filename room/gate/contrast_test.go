package gate

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

func TestContrast(t *testing.T) {
	if got := contrast("#ffffff", "#000000"); math.Abs(got-21) > 1e-9 {
		t.Fatalf("contrast of black on white = %v", got)
	}
	for name, s := range map[string]scheme{"light": lightScheme, "dark": darkScheme} {
		if len(s) != 10 {
			t.Errorf("%s has the colours %v", name, s.names())
		}
		if err := s.readable(nil, ""); err != nil {
			t.Errorf("%s: %v", name, err)
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
