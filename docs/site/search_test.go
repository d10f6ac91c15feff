package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// searched builds a site of two documents and returns it.
func searched(t *testing.T) written {
	t.Helper()
	files, to := fstest.MapFS{}, t.TempDir()
	for name, content := range map[string]string{
		"README.md":      "# Top\n",
		"docs/README.md": "# Docs\n\n| to | read |\n|---|---|\n| do | [a](a.md) |\n",
		"docs/a.md":      "# A & <b>\n\n## Two `x<y>` \"words\"\n\n### Below\n\nLine one\nLINE two, 한국어로.\n\n```sh\nsluice serve --data </p>\n```\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(content)}
	}
	if _, err := build(files, to); err != nil {
		t.Fatal(err)
	}
	return read(t, os.DirFS(to))
}

// The list has each heading of each page, escaped, and the words of pages, each once.
func TestSearchPage(t *testing.T) {
	site := searched(t)
	for _, want := range []string{
		`<a href="docs/a.html">A &amp; </a>`, `<a href="docs/a.html#two-xy-words">Two x&lt;y&gt; &#34;words&#34;</a>`, `<a href="docs/a.html#below">Below</a>`,
		`data-words=" a below data line one p serve sluice two words x y 한국어로"`,
	} {
		if !strings.Contains(site.files[searchFile], want) {
			t.Errorf("the page has no %s:\n%s", want, site.files[searchFile])
		}
	}
	if !strings.Contains(site.files["docs/a.html"], `href="../search.html"`) {
		t.Error("a page does not lead to the search")
	}
}

// dom is as much of a browser as the script uses, for pages that are given as JSON; it prints what is shown after each input.
const dom = `
const given = JSON.parse(process.argv[1]);
const output = {}, field = { value: "", addEventListener: (_, f) => { field.filter = f; } };
const form = { hidden: true, querySelector: (name) => (name === "input" ? field : output) };
const pages = given.pages.map((p) => ({ dataset: { words: p.words }, lis: p.headings.map((h) => ({ textContent: h })), querySelectorAll() { return this.lis; } }));
globalThis.document = { getElementById: () => form, querySelectorAll: () => pages };
globalThis.location = { search: given.query };
require(given.script);
const shown = () => pages.filter((p) => !p.hidden).map((p) => [p.dataset.words.trim(), ...p.lis.filter((li) => !li.hidden).map((li) => li.textContent)].join(" > ")).join("; ");
const seen = [String(form.hidden), shown()];
for (const text of given.inputs) { field.value = text; field.filter(); seen.push(shown() + " | " + output.value); }
console.log(JSON.stringify(seen));
`

// The script shows pages that have all words that are typed, by their beginnings, and the headings that have one.
func TestSearchScript(t *testing.T) {
	given, err := json.Marshal(map[string]any{
		"script": "./search.js", "query": "?q=del", "inputs": []string{"", "Delayed rec", "records zzz", "<b>"},
		"pages": []map[string]any{
			{"words": " delayed records", "headings": []string{"Delayed records", "Bounds"}},
			{"words": " records rooms", "headings": []string{"A room"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", "-e", dom, string(given)).Output()
	var seen []string
	if err == nil {
		err = json.Unmarshal(out, &seen)
	}
	want := []string{
		"false", "delayed records > Delayed records",
		"delayed records > Delayed records > Bounds; records rooms > A room | ",
		"delayed records > Delayed records | 1 of 2 pages",
		" | 0 of 2 pages",
		" | 0 of 2 pages",
	}
	if err != nil || !slices.Equal(seen, want) {
		t.Errorf("shown is %q, want %q: %v", seen, want, err)
	}
}
