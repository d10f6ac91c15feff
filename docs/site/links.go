package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/util"
)

// sourceAt is where files are that are no documents.
const sourceAt = "https://github.com/sluice-project/sluice/blob/main/"

// errLinks heads the list of links that lead nowhere.
var errLinks = errors.New("links that lead nowhere: correct the link, or what it leads to")

// headingIDs names headings as GitHub does, so that links work there and here.
type headingIDs struct{ ids map[string]bool }

// Generate implements parser.IDs: letters, digits, hyphens and underscores stay, in lower case, and spaces become hyphens.
func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	var id strings.Builder
	for _, r := range strings.ToLower(string(util.TrimLeftSpace(util.TrimRightSpace(value)))) {
		switch {
		case r == ' ':
			id.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			id.WriteRune(r)
		}
	}
	name := id.String()
	for n := 1; h.ids[name]; n++ {
		name = fmt.Sprintf("%s-%d", id.String(), n)
	}
	h.ids[name] = true
	return []byte(name)
}

// Put implements parser.IDs.
func (h *headingIDs) Put(value []byte) { h.ids[string(value)] = true }

// link makes the links of documents lead to pages, and notes the pictures that are shown.
func (s *site) link() error {
	var broken []string
	for _, d := range s.documents {
		err := ast.Walk(d.root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering {
				return ast.WalkContinue, nil
			}
			var destination *[]byte
			_, image := node.(*ast.Image)
			switch node := node.(type) {
			case *ast.Link:
				destination = &node.Destination
			case *ast.Image:
				destination = &node.Destination
			default:
				return ast.WalkContinue, nil
			}
			target, err := s.target(d, string(*destination), image)
			if err != nil {
				broken = append(broken, fmt.Sprintf("%s: %v", d.path, err))
			}
			*destination = []byte(target)
			return ast.WalkContinue, nil
		})
		if err != nil {
			return err
		}
	}
	if len(broken) > 0 {
		slices.Sort(broken)
		return fmt.Errorf("%w:\n%s", errLinks, strings.Join(broken, "\n"))
	}
	return nil
}

// target returns where a link of a document leads from its page.
func (s *site) target(d *document, to string, image bool) (string, error) {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" {
		return to, err
	}
	name := d.path
	if u.Path != "" {
		name = path.Join(path.Dir(d.path), u.Path)
	}
	linked := s.find(name)
	if linked == nil {
		if _, err := fs.Stat(s.files, name); err != nil {
			return "", fmt.Errorf("%s: %w", to, errors.Unwrap(err))
		}
		if image {
			s.assets[name] = true
			return relative(d.page, name), nil
		}
		return sourceAt + name, nil
	}
	if u.Fragment != "" && !linked.ids[u.Fragment] {
		return "", fmt.Errorf("%s: %s has no such heading", to, linked.path)
	}
	if u.Path == "" {
		return to, nil
	}
	href := url.URL{Path: relative(d.page, linked.page), Fragment: u.Fragment}
	return href.String(), nil
}

// find returns the document of a file, or of a folder; nil if there is none.
func (s *site) find(name string) *document {
	if d := s.documents[name]; d != nil {
		return d
	}
	return s.documents[path.Join(name, "README.md")]
}

// relative returns the way from one file of the site to another.
func relative(from, to string) string {
	way, err := filepath.Rel(filepath.FromSlash(path.Dir(from)), filepath.FromSlash(to))
	if err != nil {
		panic(err) // both are relative
	}
	return filepath.ToSlash(way)
}
