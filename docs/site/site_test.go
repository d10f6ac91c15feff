package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	loaded    = regexp.MustCompile(`<(?:script|iframe|link|img)\b[^>]*(?:href|src)="([^"]*)"`)
	heading   = regexp.MustCompile(`id="([^"]*)"`)
)

// The documents of the repository become a site in which every link leads somewhere, and which loads nothing from another host.
func TestSiteOfTheRepository(t *testing.T) {
	to := t.TempDir()
	pages, err := build(os.DirFS("../.."), to)
	if err != nil {
		t.Fatal(err)
	}
	site := read(t, os.DirFS(to))
	if found := len(site.ids); found != pages || pages < 90 {
		t.Errorf("%d pages, of %d that were told; want all documents, more than 90", found, pages)
	}
	for name := range site.ids {
		for _, link := range reference.FindAllStringSubmatch(site.files[name], -1) {
			site.check(t, name, link[1])
		}
		for _, part := range loaded.FindAllStringSubmatch(site.files[name], -1) {
			if strings.Contains(part[1], "//") {
				t.Errorf("%s loads %s from another host", name, part[1])
			}
		}
	}
	for name, want := range map[string]string{
		"index.html": "<h1", "README.ko.html": `<html lang="ko">`, "docs/index.html": `aria-current="page">Overview</a>`,
		"docs/bulk/fairness.html": `<img src="time-share.svg"`, "docs/decisions/index.html": `href="0098-reads-wait-for-one-operation.html"`,
	} {
		if !strings.Contains(site.files[name], want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
}

// written are the files of a site by name, and the headings of its pages.
type written struct {
	files map[string]string
	ids   map[string]map[string]bool
}

func read(t *testing.T, site fs.FS) written {
	t.Helper()
	w := written{map[string]string{}, map[string]map[string]bool{}}
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(site, name)
		w.files[name] = string(content)
		if path.Ext(name) == ".html" {
			w.ids[name] = map[string]bool{}
			for _, id := range heading.FindAllSubmatch(content, -1) {
				w.ids[name][string(id[1])] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// check checks that a link of a page leads to another site, or to a file and a heading in it.
func (w *written) check(t *testing.T, page, link string) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil || u.IsAbs() {
		return
	}
	name := page
	if u.Path != "" {
		name = path.Join(path.Dir(page), u.Path)
	}
	if _, is := w.files[name]; !is || u.Fragment != "" && !w.ids[name][u.Fragment] {
		t.Errorf("%s links to %s, which leads nowhere", page, link)
	}
}

// Links are named that lead to no file, or to no heading; those to code lead to the source.
func TestLinks(t *testing.T) {
	documents := map[string]string{
		"README.md":      "# Top\n\n[a](docs/a.md#two-words) [code](main.go) [folder](docs/) [else](https://example.com/x.md#y)\n",
		"docs/README.md": "# Docs\n\n| to | read |\n|---|---|\n| **part** | |\n| do | [a](a.md#two-words), [again](a.md) |\n",
		"docs/a.md":      "# A\n\n## Two words!\n\n## Two words\n\n[second](#two-words-1) ![picture](p.svg)\n",
		"docs/p.svg":     "<svg/>",
		"main.go":        "package main",
	}
	made := func(of map[string]string) (string, error) {
		files, to := fstest.MapFS{}, t.TempDir()
		for name, content := range of {
			files[name] = &fstest.MapFile{Data: []byte(content)}
		}
		_, err := build(files, to)
		return to, err
	}
	to, err := made(documents)
	if err != nil {
		t.Fatal(err)
	}
	site := read(t, os.DirFS(to))
	for _, want := range []string{
		`href="docs/a.html#two-words"`, `href="` + sourceAt + `main.go"`, `href="docs/index.html"`, `href="https://example.com/x.md#y"`,
		"<h2>part</h2>\n<ul><li><a href=\"docs/a.html\">A</a></li></ul>",
	} {
		if !strings.Contains(site.files["index.html"], want) {
			t.Errorf("the first page has no %s", want)
		}
	}
	if page := site.files["docs/a.html"]; !strings.Contains(page, `<img src="p.svg"`) || !strings.Contains(page, `aria-current="page">A</a>`) {
		t.Errorf("the page of docs/a.md: %s", page)
	}
	documents["README.md"], documents["docs/README.md"] = "# Top\n", "# Docs\n"
	for _, wrong := range []string{"[x](b.md)", "[x](README.md#docs)\n[x](a.md#three)", "[x](#three)", "![x](q.svg)"} {
		documents["docs/a.md"] = "# A\n\n" + wrong + "\n"
		_, err := made(documents)
		if !errors.Is(err, errLinks) || strings.Count(err.Error(), "docs/a.md: ") != 1 {
			t.Errorf("%s: %v, want one link that leads nowhere", wrong, err)
		}
	}
}
