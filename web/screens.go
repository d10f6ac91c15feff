package web

import (
	"embed"
	"net/url"
	"path"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/access"
)

//go:embed pages
var pages embed.FS

// screens are the templates of one language, by the name of their file.
type screens map[string]*template.Template

// parseScreens parses the templates for a language. Each is a file of pages, together with
// layout.html.
func parseScreens(l *uiLanguage) (screens, error) {
	functions := template.FuncMap{
		"t": l.t, "number": number, "decimal": decimal, "size": size, "percent": percent,
		"span": l.span, "ago": l.ago, "clock": clock,
	}
	base, err := template.New("").Funcs(functions).ParseFS(pages, "pages/layout.html")
	if err != nil {
		return nil, err
	}
	files, err := pages.ReadDir("pages")
	if err != nil {
		return nil, err
	}
	parsed := screens{}
	for _, file := range files {
		clone, err := base.Clone()
		if err != nil {
			return nil, err
		}
		if clone, err = clone.ParseFS(pages, path.Join("pages", file.Name())); err != nil {
			return nil, err
		}
		parsed[strings.TrimSuffix(file.Name(), ".html")] = clone
	}
	return parsed, nil
}

// sections are the entries of the navigation: the key of each text, its path, and the right of those who see it.
var sections = []struct {
	key, path string
	right     access.Right
}{
	{"nav.overview", Prefix, look}, {"nav.bulk", Prefix + "bulk", look}, {"nav.rooms", Prefix + "rooms", look}, {"nav.topics", Prefix + "topics", look},
	{"nav.cluster", Prefix + "cluster", look}, {"nav.access", accessPath, access.ManageAccess}, {"nav.settings", Prefix + "settings", look},
}

func nav(r *request) []link {
	var links []link
	for _, s := range sections {
		if !may(r.Context(), s.right) {
			continue
		}
		current := r.URL.Path == s.path || s.path != Prefix && strings.HasPrefix(r.URL.Path, s.path)
		links = append(links, link{Text: r.t(s.key), To: s.path, Current: current})
	}
	return links
}

// named returns the path of the page of something that has a name.
func named(page, name string) string {
	return Prefix + page + "?" + url.Values{"name": {name}}.Encode()
}

func roomPath(name string) string   { return named("rooms/room", name) }
func groupPath(name string) string  { return named("topics/group", name) }
func topicPath(name string) string  { return named("topics/topic", name) }
func actionPath(name string) string { return named("bulk/action", name) }
