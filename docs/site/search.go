package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

var (
	//go:embed search.html
	searchHTML string
	//go:embed search.js
	searchJS []byte

	search = template.Must(template.New("search").Parse(searchHTML))
)

// The files of the search, at the site's root.
const searchFile, searchScript = "search.html", "search.js"

// entry is a page in the list of all.
type entry struct {
	Title, Page string
	Headings    []section
	Words       string // each once, with a space before it
}

// renderSearch returns the page that lists all headings. Its script shows those of pages that have the words that are typed;
// without it the list is whole.
func (s *site) renderSearch(contents []group) ([]byte, error) {
	var entries []entry
	for _, d := range s.documents {
		entries = append(entries, entry{d.title, d.page, d.headings, wordsOf(d)})
	}
	slices.SortFunc(entries, func(a, b entry) int { // by title, and decisions, whose titles begin with their numbers, last
		key := func(e entry) string {
			return fmt.Sprint(unicode.IsDigit([]rune(e.Title)[0]), strings.ToLower(e.Title), e.Page)
		}
		return cmp.Compare(key(a), key(b))
	})
	var body, page bytes.Buffer
	if err := search.Execute(&body, entries); err != nil {
		return nil, err
	}
	err := layout.Execute(&page, shown{
		Title: "Search", Language: "en", Home: "index.html", Search: searchFile, Style: styleFile,
		Contents: relativeTo(searchFile, contents), Body: template.HTML(body.String()), //nolint:gosec // escaped by its template
	})
	return page.Bytes(), err
}

// wordsOf returns the words of a document in lower case, code included.
func wordsOf(d *document) string {
	var text strings.Builder
	_ = ast.Walk(d.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				text.Write(n.Segment.Value(d.source))
				text.WriteByte(' ')
			}
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			if entering {
				text.Write(n.Lines().Value(d.source))
			}
		}
		return ast.WalkContinue, nil
	})
	words := map[string]bool{}
	for word := range strings.FieldsFuncSeq(strings.ToLower(text.String()), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		words[word] = true
	}
	var b strings.Builder
	for _, word := range slices.Sorted(maps.Keys(words)) {
		b.WriteString(" " + word)
	}
	return b.String()
}
