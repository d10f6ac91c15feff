package gate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares a page with testdata/NAME.golden.html; -update writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden.html")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to write it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the page is not that of %s (-update writes it again)\n--- got\n%s", path, got)
	}
}

// eachSample renders all samples in all languages.
func eachSample(t *testing.T, visit func(t *testing.T, page *Page, body []byte)) {
	for _, words := range builtInWords {
		for i, page := range samples(words) {
			t.Run(fmt.Sprintf("%s/%d-%s", words.Lang, i, page.Kind), func(t *testing.T) {
				page.Brand = "Example <Shop>"
				body, err := render(builtIn, page)
				if err != nil {
					t.Fatal(err)
				}
				visit(t, page, body)
			})
		}
	}
}

// The style and the script are the same on all pages, so only one golden file has them.
func TestPagesAreAsWritten(t *testing.T) {
	seen := map[string]int{}
	eachSample(t, func(t *testing.T, page *Page, body []byte) {
		name := page.Lang + "-" + string(page.Kind)
		if seen[name]++; seen[name] > 1 {
			name += "-next"
		}
		golden(t, name, cut(cut(body, "<style", "</style>"), "<script nonce=\"c2FtcGxl\">", "</script>"))
	})
}

// cut removes the text between two texts.
func cut(body []byte, from, to string) []byte {
	start := bytes.Index(body, []byte(from))
	if start < 0 {
		return body
	}
	end := start + bytes.Index(body[start:], []byte(to))
	return append(append(bytes.Clone(body[:start+len(from)]), '|'), body[end:]...)
}

// find returns the elements that satisfy a test.
func find(node *html.Node, test func(*html.Node) bool) (found []*html.Node) {
	for child := range node.Descendants() {
		if child.Type == html.ElementNode && test(child) {
			found = append(found, child)
		}
	}
	return found
}

func tag(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return n.Data == name }
}

func with(key, value string) func(*html.Node) bool {
	return func(n *html.Node) bool { got, ok := lookup(n, key); return ok && (value == "" || got == value) }
}

func lookup(n *html.Node, key string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val, true
		}
	}
	return "", false
}

func attr(n *html.Node, key string) string { value, _ := lookup(n, key); return value }

func textOf(n *html.Node) string {
	var text strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			text.WriteString(child.Data)
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}

func parseHTML(t *testing.T, body []byte) *html.Node {
	t.Helper()
	document, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func TestPagesAreAccessible(t *testing.T) {
	eachSample(t, func(t *testing.T, page *Page, body []byte) {
		document := parseHTML(t, body)
		one := func(what string, test func(*html.Node) bool) *html.Node {
			t.Helper()
			found := find(document, test)
			if len(found) != 1 {
				t.Fatalf("%d of %s; want one", len(found), what)
			}
			return found[0]
		}
		if got := attr(one("html", tag("html")), "lang"); got != page.Lang {
			t.Errorf("lang = %q", got)
		}
		for _, name := range []string{"title", "h1", "main"} {
			if textOf(one(name, tag(name))) == "" {
				t.Errorf("<%s> is empty", name)
			}
		}
		viewport := attr(one("viewport", with("name", "viewport")), "content")
		if !strings.Contains(viewport, "width=device-width") || strings.Contains(viewport, "maximum-scale") || strings.Contains(viewport, "user-scalable") {
			t.Errorf("viewport = %q: it must fit, and allow to zoom", viewport)
		}
		for _, element := range find(document, func(n *html.Node) bool {
			return n.Data == "progress" || n.Data == "input" && attr(n, "type") != "hidden" || n.Data == "select" || n.Data == "textarea"
		}) {
			label := one("label of "+element.Data, func(n *html.Node) bool { return n.Data == "label" && attr(n, "for") == attr(element, "id") })
			if attr(element, "id") == "" || textOf(label) == "" {
				t.Errorf("<%s> has no label", element.Data)
			}
		}
		for _, button := range find(document, func(n *html.Node) bool { return n.Data == "button" || n.Data == "a" || n.Data == "summary" }) {
			if textOf(button) == "" {
				t.Errorf("<%s> without a text", button.Data)
			}
		}
		ids := map[string]bool{}
		for _, element := range find(document, with("id", "")) {
			if ids[attr(element, "id")] {
				t.Errorf("two elements have the id %q", attr(element, "id"))
			}
			ids[attr(element, "id")] = true
		}
		if page.Line != nil {
			checkLive(t, document, one("polite live region for the place", with("data-sluice", "announce")))
		}
	})
}

// checkLive checks that there is one polite live region. Texts that change often must not be in it:
// each change would be announced.
func checkLive(t *testing.T, document, live *html.Node) {
	t.Helper()
	if attr(live, "aria-live") != "polite" || attr(live, "role") != "status" {
		t.Error("the live region is not polite")
	}
	for _, name := range []string{"number", "ahead", "wait"} {
		for _, element := range find(document, with("data-sluice", name)) {
			for n := element; n != nil; n = n.Parent {
				if _, ok := lookup(n, "aria-live"); ok {
					t.Errorf("%s is within a live region", name)
				}
			}
		}
	}
}

func TestTextIsNotCode(t *testing.T) {
	page := english.page(KindWaiting)
	page.Brand, page.Return, page.Posted = `<script>alert(1)</script>`, `/"><script>alert(1)</script>`, true
	page.Paths, page.Nonce, page.Refresh = pathsOf("shop"), "bm9uY2U", 3
	line := *page
	line.setLine(&sampleAnswer, 0)
	for _, p := range []*Page{page, &line} {
		body, err := render(builtIn, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, script := range find(parseHTML(t, body), tag("script")) {
			if attr(script, "nonce") != "bm9uY2U" || strings.Contains(textOf(script), "alert(1)</script>") {
				t.Errorf("a script came in: %s", textOf(script))
			}
		}
	}
}

func TestRefreshNeedsNoScript(t *testing.T) {
	for _, posted := range []bool{false, true} {
		page := english.page(KindWaiting)
		page.Paths, page.Refresh, page.Return, page.Posted = pathsOf("shop"), 7, "/cart?a=1&b=2", posted
		page.setLine(&sampleAnswer, 0)
		body, err := render(builtIn, page)
		if err != nil {
			t.Fatal(err)
		}
		want := `<noscript><meta http-equiv="refresh" content="7"></noscript>`
		if posted {
			want = `<noscript><meta http-equiv="refresh" content="7; url=/cart?a=1&amp;b=2"></noscript>`
		}
		if !strings.Contains(string(body), want) {
			t.Errorf("posted %v: there is no %s", posted, want)
		}
	}
}

func TestTemplates(t *testing.T) {
	good, err := ParseTemplate("own.html", `<title>{{.Title}}</title>{{template "refresh" .}}{{with .Line}}<b data-sluice="place">{{.Place}}</b>{{end}}{{template "script" .}}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTemplate(good, builtInWords); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		`{{.Nothing}}`:                `"waiting" in "en"`,
		`{{.Line.Position}}`:          `"not_open" in "en"`, // not all pages have a place
		`{{if .Widget}}{{.X}}{{end}}`: `"challenge" in "en"`,
		`{{range 2000000}}x{{end}}`:   "more than 1 MiB",
	} {
		bad, err := ParseTemplate("own.html", text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(newFake(), nil, Options{Sites: []Site{{Room: "shop", Template: bad}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	if _, err := ParseTemplate("own.html", "{{if}}"); err == nil {
		t.Error("a template that cannot be parsed was taken")
	}
}

// The template in docs/room/page.md is complete.
func TestTemplateOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/room/page.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "    <!doctype html>\n")
	own, _, found := strings.Cut(rest, "    </html>\n")
	if !found {
		t.Fatal("the docs have no template")
	}
	if err := checkTemplate(mustParse(t, own), builtInWords); err != nil {
		t.Error(err)
	}
}
