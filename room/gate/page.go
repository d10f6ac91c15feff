package gate

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// Kind is the subject of a page.
type Kind string

// The kinds of pages.
const (
	// KindWaiting: the visitor is in line.
	KindWaiting Kind = "waiting"
	// KindOpening: in line, before the opening.
	KindOpening Kind = "opening"
	// KindDrawing: before the opening of a room with a lottery.
	KindDrawing Kind = "drawing"
	// KindFull: MaxWaiting visitors wait.
	KindFull Kind = "full"
	// KindNotOpen: it is too early to join.
	KindNotOpen Kind = "not_open"
	// KindEnded: the room has closed.
	KindEnded Kind = "ended"
	// KindSoldOut: the room has closed because there is nothing left.
	KindSoldOut Kind = "sold_out"
	// KindLimited: too many visitors have joined from this address.
	KindLimited Kind = "limited"
	// KindUnavailable: the store does not answer.
	KindUnavailable Kind = "unavailable"
	// KindFailed: the upstream does not answer.
	KindFailed Kind = "failed"
	// KindGone: the place was withdrawn.
	KindGone Kind = "gone"
	// KindLeft: the visitor has left by the page's button.
	KindLeft Kind = "left"
	// KindChallenge: the visitor has to pass a challenge first.
	KindChallenge Kind = "challenge"
	// KindProof: the visitor's browser has to solve a puzzle first.
	KindProof Kind = "proof"
	// KindUninvited: the visitor has no token of the shop, and the room is for those who have.
	KindUninvited Kind = "uninvited"
	// KindCode: the visitor's code is not valid.
	KindCode Kind = "code"
	// KindShared: the visitor's pass is in use from as many other addresses as may use it.
	KindShared Kind = "shared"
	// KindRefused: another site has sent the form.
	KindRefused Kind = "refused"
)

// Page is what a template is given. A template of your own may use {{template
// "style"}} within a <style>, {{template "refresh" .}} within <head>, and
// {{template "script" .}} at the end of <body>: the script keeps the text of elements
// up to date that have the attribute data-sluice with the value number, place, ahead
// or wait, the value of a <progress> with "progress", writes into "announce" at most
// every 15 s, shows those with "lost" and "cookies" when it is so, and makes the text
// of <time data-sluice="time"> the visitor's own.
type Page struct {
	Kind Kind
	// Lang is the language, as in "en" or "zh-Hans"; Dir is "ltr", or "rtl" for one that is
	// written from right to left.
	Lang, Dir string
	// Brand, Logo and Theme are those of the [Site], and may be empty: Theme is a style with its
	// colors, to follow {{template "style"}}.
	Brand string
	Logo  template.URL
	Theme template.CSS
	// Title is for <title>, Heading for <h1>; Message may be empty.
	Title, Heading, Message string
	// Notices are further sentences, such as why an earlier place is gone.
	Notices []string
	// Words are all other texts of the page.
	Words *Words
	// Line is the place in line; nil if the page is about something else.
	Line *Line
	// Opens is when the room opens, or may be joined; nil if it has opened.
	Opens *Moment
	// Refresh is after how many seconds a page without script polls; 0: never.
	Refresh int
	// Return is the path with query that the visitor wanted, to be requested with GET.
	// Posted reports whether it was requested with another method, so that a refresh must
	// name it.
	Return string
	Posted bool
	// Paths are the gate's own.
	Paths Paths
	// Nonce is for the nonce attribute of each <script> and <style>.
	Nonce string
	// Widget is set for KindChallenge and KindProof.
	Widget *Widget
	// Rejoin reports whether to offer a form that posts "to" to Paths.Join, Retry whether
	// to offer a link to Return.
	Rejoin, Retry bool
	// Codes reports whether to offer a form that posts "code" and "to" to Paths.Code.
	Codes bool
	// Live is read by the template "script"; nil if nothing is kept up to date.
	Live *Live
}

// Line is a place in line, in words.
type Line struct {
	// Position counts from 1; 0 if it is not drawn yet. Start is the first position that
	// was shown.
	Position, Start int64
	// Percent is how much of the way from Start is done.
	Percent int64
	// Number is the position with grouped digits, and Place with the suffix of the
	// language. Ahead and Wait are sentences or parts of them. All but Place are empty if
	// Position is 0.
	Number, Place, Ahead, Wait string
}

// Moment is a time: Machine in RFC 3339, Text for people, in UTC.
type Moment struct{ Machine, Text string }

// Paths are the gate's own, below /.sluice/{room}/. Leave, Join and Enter take a POST of
// a form with "to", the path to continue with; Code takes one with "code" too.
type Paths struct{ Watch, Status, Leave, Join, Enter, Code string }

// Live is what the script reads.
type Live struct {
	Watch    string `json:"watch"`
	Status   string `json:"status"`
	Return   string `json:"return"`
	Position int64  `json:"position"`
	Start    int64  `json:"start"`
	Words    *Words `json:"words"`
}

//go:embed page.html page.css page.js
var files embed.FS

// builtIn is the page of this package.
var builtIn = template.Must(parseFiles())

func parseFiles() (*template.Template, error) {
	return template.New("page.html").ParseFS(files, "page.html", "page.css", "page.js")
}

// maxPage is the most bytes of a page.
const maxPage = 1 << 20

// ParseTemplate parses a template in the language of html/template, for [Options]. It is
// executed with a [Page].
func ParseTemplate(name, text string) (*template.Template, error) {
	base, err := parseFiles() // A template that was executed cannot be added to.
	if err != nil {
		return nil, err
	}
	return base.New(name).Parse(text)
}

// limitedBuffer refuses more than maxPage bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxPage {
		return 0, errors.New("the page has more than 1 MiB")
	}
	return b.Buffer.Write(p)
}

// render writes a page to memory first, so that an error sends no partial page.
func render(page *template.Template, data *Page) ([]byte, error) {
	var buffer limitedBuffer
	// ReadFrom would bypass the limit.
	if err := page.Execute(struct{ io.Writer }{&buffer}, data); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// checkTemplate executes a template with a page of each kind in each language.
func checkTemplate(page *template.Template, words []*Words) error {
	for _, w := range words {
		for _, sample := range samples(w) {
			if _, err := render(page, sample); err != nil {
				return fmt.Errorf("the template cannot show the page %q in %q: %w", sample.Kind, w.Lang, err)
			}
		}
	}
	return nil
}

// samples are pages of all kinds.
func samples(w *Words) []*Page {
	var pages []*Page
	add := func(kind Kind, change func(*Page)) {
		page := w.page(kind)
		page.Paths, page.Nonce, page.Return, page.Refresh = pathsOf("sample"), "c2FtcGxl", "/?sample", 5
		if change != nil {
			change(page)
		}
		pages = append(pages, page)
	}
	in := func(answer engine.Answer) func(*Page) {
		return func(page *Page) { page.setLine(&answer, 1_500) }
	}
	add(KindWaiting, in(engine.Answer{Position: 1_234, Wait: &engine.Wait{Low: 3 * time.Minute, High: 5 * time.Minute}}))
	add(KindWaiting, func(page *Page) {
		in(engine.Answer{Position: 1})(page)
		page.Codes = true
	})
	add(KindOpening, func(page *Page) {
		in(engine.Answer{Position: 12})(page)
		page.Opens = w.opens(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
	})
	add(KindDrawing, func(page *Page) {
		in(engine.Answer{})(page)
		page.Opens = w.opens(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
	})
	add(KindNotOpen, func(page *Page) { page.Opens = w.opens(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)) })
	add(KindGone, func(page *Page) {
		page.Rejoin = true
		page.Notices = []string{w.Gone[room.Revoked]}
	})
	add(KindLeft, func(page *Page) { page.Rejoin = true })
	add(KindCode, func(page *Page) { page.Codes, page.Retry = true, true })
	add(KindChallenge, func(page *Page) { page.Widget = &Widget{HTML: `<div></div>`, Script: "https://example.com/a.js"} })
	add(KindProof, func(page *Page) {
		page.Widget = &Widget{HTML: proofHTML("sample", engine.DefaultMinPuzzleBits, w), Script: base(previewRoom) + "proof.js"}
	})
	for _, kind := range []Kind{KindFull, KindEnded, KindSoldOut, KindLimited, KindUnavailable, KindFailed, KindRefused, KindUninvited, KindShared} {
		add(kind, func(page *Page) { page.Retry = kind != KindEnded && kind != KindSoldOut && kind != KindUninvited })
	}
	return pages
}

// page returns a page of a kind.
func (w *Words) page(kind Kind) *Page {
	text := w.Pages[kind]
	return &Page{Kind: kind, Lang: w.Lang, Dir: w.direction(), Words: w, Title: text.Title, Heading: text.Heading, Message: text.Message}
}

func (w *Words) opens(t time.Time) *Moment {
	return &Moment{Machine: t.UTC().Format(time.RFC3339), Text: w.moment(t)}
}

// setLine sets the place in line of a page that has its paths.
func (p *Page) setLine(answer *engine.Answer, start int64) {
	w := p.Words
	start = max(start, answer.Position)
	p.Line = &Line{Position: answer.Position, Start: start, Place: w.PlaceHidden}
	if answer.Position > 0 {
		p.Line.Number = w.number(answer.Position)
		p.Line.Place = p.Line.Number + w.PlaceSuffix
		p.Line.Ahead = w.ahead(answer.Position - 1)
		p.Line.Wait = w.wait(answer.Wait)
		p.Line.Percent = 100 * (start - answer.Position) / start
	}
	p.Live = &Live{Watch: p.Paths.Watch, Status: p.Paths.Status, Position: answer.Position, Start: start, Words: w}
	if p.Posted {
		p.Live.Return = p.Return
	}
}

// newNonce returns 16 random bytes as text.
func newNonce() string { return rand.Text()[:22] }
