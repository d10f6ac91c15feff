package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS []byte

	layout   = template.Must(template.New("page").Parse(pageHTML))
	markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
)

// styleFile is the style sheet's name, at the site's root.
const styleFile = "style.css"

// document is one document of the repository, and its page.
type document struct {
	// path is that of the source and page that of the page, both with slashes from their root.
	path, page string
	source     []byte
	root       ast.Node
	title      string
	sections   []section       // the headings of the second level
	headings   []section       // those of all levels below the title
	ids        map[string]bool // of all headings
}

// section is a part of a page that can be linked to.
type section struct{ ID, Title string }

// site is what is built.
type site struct {
	files     fs.FS // the repository
	documents map[string]*document
	assets    map[string]bool // pictures that documents show
}

// build writes the site of a repository into a folder, and returns how many pages it has. An error names all links that lead
// nowhere.
func build(files fs.FS, to string) (pages int, err error) {
	s := &site{files: files, documents: map[string]*document{}, assets: map[string]bool{}}
	if err := s.read(); err != nil {
		return 0, err
	}
	s.indexFolders()
	contents, err := s.contents("docs/README.md")
	if err != nil {
		return 0, err
	}
	if err := s.link(); err != nil {
		return 0, err
	}
	for _, d := range s.documents {
		page, err := s.render(d, contents)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", d.path, err)
		}
		if err := write(to, d.page, page); err != nil {
			return 0, err
		}
	}
	for asset := range s.assets {
		content, err := fs.ReadFile(files, asset)
		if err == nil {
			err = write(to, asset, content)
		}
		if err != nil {
			return 0, err
		}
	}
	page, err := s.renderSearch(contents)
	if err != nil {
		return 0, err
	}
	for name, content := range map[string][]byte{searchFile: page, searchScript: searchJS, styleFile: styleCSS} {
		if err := write(to, name, content); err != nil {
			return 0, err
		}
	}
	return len(s.documents) + 1, nil
}

func write(to, name string, content []byte) error {
	target := filepath.Join(to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, content, 0o644)
}

// skipped are folders without documents: what is built or belongs to tests.
var skipped = []string{"bin", "dist", "node_modules", "testdata"}

// read parses all documents.
func (s *site) read() error {
	return fs.WalkDir(s.files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || slices.Contains(skipped, entry.Name())) {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".md":
			return nil
		}
		source, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		s.documents[name] = parse(name, source)
		return nil
	})
}

// indexFolders makes a page that lists the documents of each folder of docs that has no README.
func (s *site) indexFolders() {
	folders := map[string][]*document{}
	for name, d := range s.documents {
		if strings.HasPrefix(name, "docs/") {
			folders[path.Dir(name)] = append(folders[path.Dir(name)], d)
		}
	}
	for folder, documents := range folders {
		index := folder + "/README.md"
		if s.documents[index] != nil {
			continue
		}
		slices.SortFunc(documents, func(a, b *document) int { return cmp.Compare(a.path, b.path) })
		var list bytes.Buffer
		fmt.Fprintf(&list, "# %s\n\n", path.Base(folder))
		for _, d := range documents {
			fmt.Fprintf(&list, "- [%s](%s)\n", d.title, path.Base(d.path))
		}
		s.documents[index] = parse(index, list.Bytes())
	}
}

func parse(name string, source []byte) *document {
	d := &document{path: name, page: pageOf(name), source: source, ids: map[string]bool{}}
	d.root = markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&headingIDs{ids: d.ids}))))
	for node := d.root.FirstChild(); node != nil; node = node.NextSibling() {
		heading, is := node.(*ast.Heading)
		if !is {
			continue
		}
		if heading.Level == 1 {
			d.title = cmp.Or(d.title, textOf(heading, source))
			continue
		}
		id, _ := heading.AttributeString("id")
		below := section{fmt.Sprintf("%s", id), textOf(heading, source)}
		d.headings = append(d.headings, below)
		if heading.Level == 2 {
			d.sections = append(d.sections, below)
		}
	}
	d.title = cmp.Or(d.title, path.Base(name))
	return d
}

// pageOf returns the page of a document.
func pageOf(name string) string {
	if path.Base(name) == "README.md" {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// textOf returns what a reader sees of a node.
func textOf(node ast.Node, source []byte) string {
	var to strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				to.Write(n.Segment.Value(source))
			}
		case *ast.String:
			if entering {
				to.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return to.String()
}

// shown is what the layout shows.
type shown struct {
	Title    string
	Language string
	Home     string // the way to the root of the site
	Search   string
	Style    string
	Source   string
	Sections []section
	Contents []group
	Body     template.HTML
}

// render returns the page of a document.
func (s *site) render(d *document, contents []group) ([]byte, error) {
	var body, page bytes.Buffer
	if err := markdown.Renderer().Render(&body, d.source, d.root); err != nil {
		return nil, err
	}
	v := shown{
		Title: d.title, Language: "en", Home: relative(d.page, "index.html"), Search: relative(d.page, searchFile), Style: relative(d.page, styleFile),
		Source: sourceAt + d.path, Contents: relativeTo(d.page, contents), Body: template.HTML(body.String()), //nolint:gosec // our own documents
	}
	if name := strings.TrimSuffix(path.Base(d.path), ".md"); path.Ext(name) != "" {
		v.Language = strings.TrimPrefix(path.Ext(name), ".") // README.ko.md
	}
	if len(d.sections) > 2 {
		v.Sections = d.sections
	}
	err := layout.Execute(&page, v)
	return page.Bytes(), err
}
