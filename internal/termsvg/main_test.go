package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	var image strings.Builder
	if err := draw(strings.NewReader("a < b\n────\nsum  ✓ 12\nlost ✗ 1\n\n"), &image, `say "hello"`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`aria-label="say &#34;hello&#34;"`, "a &lt; b", `<tspan class="rule">────</tspan>`,
		`sum  <tspan class="good">✓</tspan> 12`, `lost <tspan class="bad">✗</tspan> 1`,
	} {
		if !strings.Contains(image.String(), want) {
			t.Errorf("the image lacks %s:\n%s", want, &image)
		}
	}
	if got := strings.Count(image.String(), "<text"); got != 5 {
		t.Errorf("%d texts, want the title and four lines", got)
	}
	for decoder := xml.NewDecoder(strings.NewReader(image.String())); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrawRefusesWhatIsNoScreen(t *testing.T) {
	for _, text := range []string{"", "\n\n", strings.Repeat("x\n", maxLines+1)} {
		if err := draw(strings.NewReader(text), io.Discard, ""); err == nil {
			t.Errorf("%.10q was drawn", text)
		}
	}
}
