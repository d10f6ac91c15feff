package gate

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
	"golang.org/x/text/language"
)

// previewStep is how often the line of a preview advances.
const previewStep = 2 * time.Second

// Preview returns a handler that shows the pages of a site, of all kinds and in its languages (none:
// all that are built in), to invented visitors whose line advances: / lists the pages. It is for
// people who write a template, texts or a theme: load is called now, and for each page. A later error
// of it, or of the site, is shown in place of the page.
func Preview(load func() (Site, error), languages []language.Tag) (http.Handler, error) {
	p := &preview{load: load, languages: languages}
	if _, err := p.look(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.with(p.list))
	mux.HandleFunc("GET /pages/{language}/{number}", p.with(p.show))
	mux.HandleFunc("GET "+pathsOf(previewRoom).Watch, p.watch)
	mux.HandleFunc(ownPrefix, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusSeeOther) })
	return mux, nil
}

type preview struct {
	load      func() (Site, error)
	languages []language.Tag
}

// look returns the look of the site as it is now.
func (p *preview) look() (*look, error) {
	site, err := p.load()
	if err != nil {
		return nil, err
	}
	return newLook(&site, p.languages)
}

// with gives a handler the look.
func (p *preview) with(answer func(*look, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l, err := p.look()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(l, w, r)
	}
}

// previewRoom is the room of samples.
const previewRoom = "sample"

var previewIndex = template.Must(template.New("index").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Pages of the gate</title>
<style>body { font: 1rem/1.6 system-ui, sans-serif; margin: 2rem } td, th { padding: .1rem 1rem .1rem 0; text-align: left }</style>
<h1>Pages of the gate</h1>
<p>A change of the template, the texts or the settings shows when a page is loaded again.</p>
<table>
{{range $number, $row := .}}<tr>{{range $i, $page := $row}}{{if not $i}}<th scope="row">{{$page.Kind}}</th>{{end}}<td><a href="/pages/{{$page.Lang}}/{{$number}}">{{$page.Title}}</a></td>{{end}}</tr>
{{end}}</table>
</html>
`))

// list shows links to all pages: a row for each kind, a column for each language.
func (p *preview) list(l *look, w http.ResponseWriter, _ *http.Request) {
	rows := make([][]*Page, len(samples(english)))
	for _, words := range l.words.words {
		for i, page := range samples(words) {
			rows[i] = append(rows[i], page)
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = previewIndex.Execute(w, rows) // the browser is gone
}

// show shows one page.
func (p *preview) show(l *look, w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.PathValue("number"))
	for _, words := range l.words.words {
		all := samples(words)
		if words.Lang != r.PathValue("language") || err != nil || number < 0 || number >= len(all) {
			continue
		}
		page := all[number]
		l.dress(page)
		page.Return, page.Refresh = "/", 0
		if page.Live != nil {
			page.Live.Watch += fmt.Sprint("?position=", page.Live.Position)
		}
		body, err := render(l.page, page)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(body)
		return
	}
	http.NotFound(w, r)
}

// watch is the event stream of an invented visitor, who has the position that the page shows.
func (p *preview) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(previewStep)
	defer tick.Stop()
	position, _ := strconv.ParseInt(r.URL.Query().Get("position"), 10, 64)
	for {
		minutes := position / 300
		_, _ = fmt.Fprintf(w, `data: {"status":"waiting","position":%d,"estimated_wait_ms":{"low":%d,"high":%d}}`+"\n\n",
			position, minutes*60_000, (minutes+1)*60_000)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		position -= min(1+position/20, max(0, position-1)) // the first stays, and so does 0, which is not drawn
	}
}
