package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
)

// group is a part of the list of pages, and item a page in it.
type (
	group struct {
		Title string
		Items []item
	}
	item struct {
		Title, Page string
		Here        bool // it is the page that is shown
	}
)

// contents reads the list of pages from the table of a document: rows with a bold text begin a group, links of the
// others are its pages, each once. It reads links as the documents have them.
func (s *site) contents(name string) ([]group, error) {
	index := s.documents[name]
	if index == nil {
		return nil, fmt.Errorf("there is no %s, whose table lists the pages", name)
	}
	groups, listed := []group{{Items: []item{{Title: "Overview", Page: index.page}}}}, map[*document]bool{index: true}
	err := ast.Walk(index.root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *east.TableRow:
			if bold, is := node.FirstChild().FirstChild().(*ast.Emphasis); is && bold.Level == 2 {
				groups = append(groups, group{Title: textOf(bold, index.source)})
			}
		case *ast.Link:
			to, _, _ := strings.Cut(string(node.Destination), "#")
			if d := s.find(path.Join(path.Dir(name), to)); d != nil && !listed[d] {
				listed[d] = true
				last := &groups[len(groups)-1]
				last.Items = append(last.Items, item{Title: d.title, Page: d.page})
			}
		}
		return ast.WalkContinue, nil
	})
	return groups, err
}

// relativeTo returns the list of pages as it is shown on a page.
func relativeTo(page string, contents []group) []group {
	shown := make([]group, len(contents))
	for i, g := range contents {
		shown[i] = group{Title: g.Title}
		for _, it := range g.Items {
			shown[i].Items = append(shown[i].Items, item{it.Title, relative(page, it.Page), it.Page == page})
		}
	}
	return shown
}
