package gate

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/room"
)

func mustReadWords(t *testing.T, text string) *Words {
	t.Helper()
	words, err := ParseWords([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// Texts of an operator add a language, or replace some texts of one that is built in. Missing ones are
// those of the language, or English.
func TestOwnTexts(t *testing.T) {
	arabic := mustReadWords(t, "lang: ar\nahead: \"أمامك {n}\"\nthousands: \"٬\"\npages: {waiting: {heading: في الانتظار}}\n")
	s := newStand(t, func(o *Options) {
		o.Sites[0].Texts = []*Words{arabic, mustReadWords(t, "lang: ko\npages: {waiting: {heading: 우리 줄}}\ngone: {left: 다시}\n")}
	})
	expect(t, s.get("http://shop.test/", asPage, header("Accept-Language", "ar-EG")), http.StatusOK,
		`<html lang="ar" dir="rtl">`, "<h1>في الانتظار</h1>", english.Keep, english.Pages[KindWaiting].Message)
	expect(t, s.get("http://shop.test/", asPage, header("Accept-Language", "ko")), http.StatusOK, "<h1>우리 줄</h1>", korean.Keep, korean.Pages[KindWaiting].Message)
	expect(t, s.get("http://shop.test/", asPage, header("Accept-Language", "de")), http.StatusOK, "<h1>"+english.Pages[KindWaiting].Heading)
	if got := arabic.ahead(1_234_567); got != "أمامك 1٬234٬567" {
		t.Errorf("ahead: %s", got)
	}
	if _, err := newChooser([]language.Tag{language.French}, []*Words{arabic}); err == nil || !strings.Contains(err.Error(), `"fr"`) {
		t.Errorf("without French texts: %v", err)
	}
	c, err := newChooser([]language.Tag{language.Arabic, language.English}, []*Words{arabic})
	if err != nil || c.choose("de") != arabic {
		t.Errorf("the first language is not the default: %v", err)
	}
	if _, err := newChooser(nil, []*Words{arabic, arabic}); err == nil {
		t.Error("a language may come twice")
	}
}

func TestTextsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"": "want the texts of one language", "lang: fr\nplce: x\n": "line 2: field plce", "place: x\n": `lang: ""`, "lang: f\n": `lang: "f"`,
		"lang: fr\nahead: devant\n": `ahead: "devant" has [] for numbers: want ["{n}"]`, "lang: fr\nwait_up_to: \"{n}\"\n": `want ["{high}"]`,
		"lang: fr\nkeep: \"{n}\"\n": "want []", "lang: fr\npages: {waitng: {title: a}}\n": `pages: "waitng"`, "lang: fr\ngone: {lft: a}\n": `gone: "lft"`,
		"lang: fr\ntime: bientôt\n": "2 January 2006", "lang: fr\n" + strings.Repeat("# x\n", MaxWords/4): "64 KiB",
	} {
		if _, err := ParseWords([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v; want %s", text, err, want)
		}
	}
}

// A file that is printed is one that is read.
func TestPrintedTexts(t *testing.T) {
	for _, words := range builtInWords {
		text, err := WordsFile(words.Lang)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustReadWords(t, string(text)); got.Lang != words.Lang || got.Gone[room.Left] != words.Gone[room.Left] {
			t.Errorf("%s: %v", words.Lang, got)
		}
	}
	if _, err := WordsFile("../words"); err == nil {
		t.Error("a language that is a path")
	}
}

func FuzzWords(f *testing.F) {
	text, err := WordsFile("en")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("lang: ar\npages: {waiting: {heading: x}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		words, err := ParseWords(text)
		if err != nil {
			return
		}
		if _, err := newLook(&Site{Texts: []*Words{words}, Template: builtIn}, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// A theme's colors are those of the page, in the scheme that they are for.
func TestTheme(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Sites[0].Theme, o.Sites[0].Brand = []string{"accent=#8A1C1C", "dark-page=#000000"}, "A & B"
		logo, err := ParseLogo("logo.SVG", []byte("<svg/>"))
		if err != nil {
			t.Fatal(err)
		}
		o.Sites[0].Logo = logo
	})
	expect(t, s.get("http://shop.test/", asPage), http.StatusOK,
		"(prefers-color-scheme: light) { :root { --accent: #8a1c1c; } }", "(prefers-color-scheme: dark) { :root { --page: #000000; } }",
		`<img src="data:image/svg&#43;xml;base64,PHN2Zy8&#43;" alt="A &amp; B">`)
}

func TestLooksThatAreWrong(t *testing.T) {
	for theme, want := range map[string]string{
		"acent=#8a1c1c": "want one of accent, card", "accent=red": "want a color such as accent=#2f5d62", "accent=#8a1c1c;}": "want a color",
		"accent=#ffee00":      "accent #ffee00 on card #ffffff has a contrast of 1.2: want 4.5 or more",
		"dark-accent=#101010": "dark-accent #101010 on dark-card #1d2128", "text=#000000 text=#111111": "comes twice",
	} {
		if _, err := newLook(&Site{Theme: strings.Fields(theme)}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", theme, err, want)
		}
	}
	for file, size := range map[string]int{"logo": 1, "logo.html": 1, "logo.png": 0, "logo.jpg": MaxLogo + 1} {
		if _, err := ParseLogo(file, make([]byte, size)); err == nil {
			t.Errorf("a logo of %d bytes, %s", size, file)
		}
	}
}
