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

// Preview returns a handler that shows the pages of a template, of all kinds and in some languages
// (none: all), to invented visitors whose line advances: / lists the pages. It is for people who
// write a template: load is called for each page, and returns nil for the built-in one. An error of
// it is shown in place of the page.
func Preview(load func() (*template.Template, error), brand string, languages []language.Tag) (http.Handler, error) {
	words, err := newChooser(languages)
	if err != nil {
		return nil, err
	}
	p := &preview{load: load, brand: brand, words: words.words}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.list)
	mux.HandleFunc("GET /pages/{language}/{number}", p.show)
	mux.HandleFunc("GET "+pathsOf(previewRoom).Watch, p.watch)
	mux.HandleFunc(ownPrefix, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusSeeOther) })
	return mux, nil
}

type preview struct {
	load  func() (*template.Template, error)
	brand string
	words []*Words
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
<p>A change of the template shows when a page is loaded again.</p>
<table>
{{range $number, $row := .}}<tr>{{range $i, $page := $row}}{{if not $i}}<th scope="row">{{$page.Kind}}</th>{{end}}<td><a href="/pages/{{$page.Lang}}/{{$number}}">{{$page.Title}}</a></td>{{end}}</tr>
{{end}}</table>
</html>
`))

// list shows links to all pages: a row for each kind, a column for each language.
func (p *preview) list(w http.ResponseWriter, _ *http.Request) {
	rows := make([][]*Page, len(samples(p.words[0])))
	for _, words := range p.words {
		for i, page := range samples(words) {
			rows[i] = append(rows[i], page)
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = previewIndex.Execute(w, rows) // the browser is gone
}

// show shows one page.
func (p *preview) show(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.PathValue("number"))
	for _, words := range p.words {
		all := samples(words)
		if words.Lang != r.PathValue("language") || err != nil || number < 0 || number >= len(all) {
			continue
		}
		page := all[number]
		page.Brand, page.Return, page.Refresh = p.brand, "/", 0
		if page.Live != nil {
			page.Live.Watch += fmt.Sprint("?position=", page.Live.Position)
		}
		body, err := p.render(page)
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

func (p *preview) render(page *Page) ([]byte, error) {
	of, err := p.load()
	if err != nil {
		return nil, err
	}
	if of == nil {
		of = builtIn
	}
	return render(of, page)
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
