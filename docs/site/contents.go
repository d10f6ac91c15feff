package main

import (
	"fmt"

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
// others are its pages, each once.
func (s *site) contents(name string) ([]group, error) {
	index := s.documents[name]
	if index == nil {
		return nil, fmt.Errorf("there is no %s, whose table lists the pages", name)
	}
	byPage := map[string]*document{}
	for _, d := range s.documents {
		byPage[d.page] = d
	}
	groups, listed := []group{{Items: []item{{Title: "Overview", Page: index.page}}}}, map[string]bool{index.page: true}
	err := ast.Walk(index.root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		row, is := node.(*east.TableRow)
		if !is || !entering {
			return ast.WalkContinue, nil
		}
		if bold, is := row.FirstChild().FirstChild().(*ast.Emphasis); is && bold.Level == 2 {
			groups = append(groups, group{Title: textOf(bold, index.source)})
			return ast.WalkSkipChildren, nil
		}
		last := &groups[len(groups)-1]
		for _, page := range pagesIn(row, index) {
			if d := byPage[page]; d != nil && !listed[page] {
				listed[page] = true
				last.Items = append(last.Items, item{Title: d.title, Page: page})
			}
		}
		return ast.WalkSkipChildren, nil
	})
	return groups, err
}

// pagesIn returns the pages that a node of a document links to; its links have been made.
func pagesIn(node ast.Node, d *document) (pages []string) {
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, is := n.(*ast.Link); is && entering {
			pages = append(pages, pageFrom(d.page, string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
	return pages
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
