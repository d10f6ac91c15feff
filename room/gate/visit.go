package gate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/proxied"
)

// visit is one request.
type visit struct {
	gate *Gate
	site *site
	door *door
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler

	kind kind
	// script reports whether a script has asked for a place at the gate's own path.
	script   bool
	client   netip.Addr
	chosen   *Words // see words
	settings room.Settings
	// code is what a form has to enter with.
	code string
	// ticket and proof are the cookies' ticket and pass; lost is why an earlier place is
	// gone.
	ticket, proof string
	lost          room.Reason
	// prefix begins the names of the cookies: hostPrefix if the visitor uses TLS.
	prefix string
	// sent are the cookies of the request; cookies go with the answer.
	sent, cookies []*http.Cookie
}

func (g *Gate) visit(s *site, d *door, w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{
		gate: g, site: s, door: d, w: w, r: r,
		kind:   kindOf(r),
		client: proxied.Client(r, g.options.TrustedProxies),
		sent:   r.Cookies(),
	}
	if g.secure(r) {
		v.prefix = hostPrefix
	}
	if g.tracer != nil {
		trace.SpanFromContext(r.Context()).SetAttributes(keyRoom.String(d.room))
	}
	v.ticket, v.proof = v.cookie(v.door.ticketCookie), v.cookie(v.door.passCookie)
	v.preferOwnTicket()
	return v
}

// words returns the words in the visitor's language.
func (v *visit) words() *Words {
	if v.chosen == nil {
		v.chosen = v.site.look.words.choose(v.r.Header.Get("Accept-Language"))
	}
	return v.chosen
}

// decide answers the visit, or lets it through.
func (v *visit) decide() {
	v.w.Header().Set(WaitHeader, v.door.room)
	if err := v.findSettings(); err != nil {
		v.refuse(err)
		return
	}
	if !v.settings.NeedsPass(v.r.Host, v.r.URL.Path, v.r.Method) {
		v.comeBack()
		v.pass(nil)
		return
	}
	v.admit()
}

// crawlAgain is when a crawler that is refused shall come again.
const crawlAgain = 10 * time.Minute

// maxNamesakes is how many cookies of the ticket's name are checked.
const maxNamesakes = 4

// preferOwnTicket takes the first valid ticket, if there are several: without TLS another
// host of the same domain can set a cookie for all of it, and the visitor would lose the
// place if only that one were checked.
func (v *visit) preferOwnTicket() {
	name, _ := v.sentAs(v.door.ticketCookie)
	named := func(c *http.Cookie) bool { return c.Name == name }
	first := slices.IndexFunc(v.sent, named)
	if first < 0 || !slices.ContainsFunc(v.sent[first+1:], named) {
		return
	}
	ctx, cancel := v.asking()
	defer cancel()
	checked := 0
	for _, c := range v.sent[first:] {
		if !named(c) || checked == maxNamesakes {
			continue
		}
		checked++
		if _, err := v.gate.rooms.Parse(ctx, v.door.room, c.Value, v.client); err == nil {
			v.ticket = c.Value
			return
		}
	}
}

// asking returns a context that bounds a call to the engine.
func (v *visit) asking() (context.Context, context.CancelFunc) {
	return context.WithTimeout(v.r.Context(), AskTime)
}

// findSettings reads the room's settings. The engine knows them while the store is
// unavailable if it has ever read them; otherwise the gate stays closed.
func (v *visit) findSettings() (err error) {
	ctx, cancel := v.asking()
	defer cancel()
	v.settings, err = v.gate.rooms.Settings(ctx, v.door.room)
	return err
}

// admit handles a request that needs a pass.
func (v *visit) admit() {
	var gone *room.GoneError
	if v.proof != "" {
		answer, err := v.askPass()
		switch {
		case err == nil && answer.State == room.Inside && v.proves(answer.Proven):
			v.inside(answer)
			return
		case errors.As(err, &gone), err == nil, errors.Is(err, engine.ErrBadPass):
			// A pass is short-lived: the ticket decides.
		default:
			v.refuse(err)
			return
		}
	}
	if v.ticket != "" && v.provenTicket() {
		answer, err := v.askTicket(v.kind != part)
		switch {
		case err == nil:
			v.showPlace(&answer)
			return
		case errors.As(err, &gone):
		case errors.Is(err, engine.ErrBadTicket):
			// The ticket is of an earlier room of that name, or forged: a newcomer.
		default:
			v.refuse(err)
			return
		}
	}
	if gone != nil {
		v.gone(gone)
		return
	}
	v.join()
}

// askPass asks about the pass, unless the engine has confirmed it lately.
func (v *visit) askPass() (*engine.Answer, error) {
	claim, asked := claim{v.door.room, v.proof, v.client}, time.Now()
	if answer := v.gate.believed.get(claim, asked); answer != nil {
		return answer, nil
	}
	var answer engine.Answer
	err := v.ask(func(ctx context.Context) (err error) {
		answer, err = v.gate.rooms.AskPass(ctx, claim.room, claim.pass, claim.client)
		return err
	})
	if err == nil && answer.State == room.Inside {
		v.gate.believed.put(claim, &answer, asked)
	}
	return &answer, err
}

// askTicket asks for the place. A part of a page does not claim: a called visitor has to
// open a page.
func (v *visit) askTicket(claim bool) (answer engine.Answer, err error) {
	name := v.door.room
	err = v.ask(func(ctx context.Context) (err error) {
		if claim {
			answer, err = v.gate.rooms.Ask(ctx, name, v.ticket, v.client)
			return err
		}
		ticket, err := v.gate.rooms.Parse(ctx, name, v.ticket, v.client)
		if err != nil {
			return err
		}
		result := v.gate.rooms.AskAll(ctx, name, []engine.Asker{{Ticket: ticket}}, false)[0]
		answer, err = result.Answer, result.Err
		return err
	})
	return answer, err
}

// gone handles a visitor whose place is gone. A visitor who was revoked, or comes after
// the end, or when all is sold, sees a page; others join again, and see why.
func (v *visit) gone(gone *room.GoneError) {
	kind := map[room.Reason]Kind{room.Revoked: KindGone, room.Ended: KindEnded, room.SoldOut: KindSoldOut}[gone.Reason]
	if v.kind == navigation && kind == "" {
		v.lost = gone.Reason
		v.join()
		return
	}
	kind = cmp.Or(kind, KindGone)
	page := v.newPage(kind)
	if kind == KindGone {
		page.Rejoin = true
		page.Notices = append(page.Notices, v.words().Gone[gone.Reason])
	}
	v.respond(http.StatusGone, problem{Code: "gone", Reason: gone.Reason,
		Detail: gone.Error() + "; POST " + v.door.paths.Join + " gives up the ticket"}, page)
}

// join enters the line.
func (v *visit) join() {
	otherSite := v.kind == navigation && sameSite.Check(v.r) != nil
	switch {
	case v.site.Crawlers == PassCrawlers && isCrawler(v.r):
		v.pass(nil)
		return
	case v.site.Crawlers == RefuseCrawlers && isCrawler(v.r):
		v.kind = part
		v.retryAfter(crawlAgain)
		v.respond(http.StatusServiceUnavailable, problem{Detail: "the site is busy; come again later"}, nil)
		return
	case (v.kind == part || otherSite) && v.settings.OnStoreFailure == room.FailOpen && v.gate.store.failedLately():
		v.pass(nil)
		return
	case v.kind == part:
		v.respond(http.StatusServiceUnavailable, problem{}, nil)
		return
	case otherSite:
		// Browsers send no cookies with a form of another site: a new place would replace
		// the visitor's own. They send cookies with the GET, or the form, that follows.
		if v.resend() {
			return
		}
		v.redirect(localPath(v.r.URL.RequestURI()))
		return
	}
	if err := v.mayJoin(); err != nil {
		v.refuse(err)
		return
	}
	passed, err := v.challenged()
	if err != nil {
		v.unavailable(err)
		return
	}
	leave, joins := v.begin()
	if !joins {
		v.later(http.StatusServiceUnavailable, KindUnavailable, "busy", errBusy, busyAgain)
		return
	}
	defer leave()
	if !passed {
		v.askToPass()
		return
	}
	answer, err := v.enter()
	if err != nil {
		v.refuse(err)
		return
	}
	v.showPlace(&answer)
}

// errBusy is what newcomers are told while too many others join. They come again after busyAgain or more.
var errBusy = errors.New("too many visitors are joining: come again")

const busyAgain = 5 * time.Second

// begin waits until a newcomer may join.
func (v *visit) begin() (leave func(), joins bool) {
	if v.gate.options.Join == nil {
		return func() {}, true
	}
	return v.gate.options.Join(v.r.Context())
}

// enter takes a place, which is that of the shop's customer if a token says so. A free slot is
// the visitor's for the claim window only, until a cookie comes back: programs that keep none
// would fill the room. A token that has expired, or the code of an old link, must lock nobody out: its visitor is a
// newcomer without a key.
func (v *visit) enter() (answer engine.Answer, err error) {
	visit := room.Visit{
		Client: v.client, Shared: proxied.Shared(v.client, v.gate.options.TrustedProxies), Token: proxied.Token(v.r), Provisional: true,
		Code:   cmp.Or(v.code, proxied.Code(v.r)),
		Proven: v.gate.options.Challenge != nil,
	}
	err = v.ask(func(ctx context.Context) (err error) {
		for {
			answer, err = v.gate.rooms.Enter(ctx, v.door.room, visit)
			switch {
			case errors.Is(err, engine.ErrBadToken):
				visit.Token = ""
			case errors.Is(err, engine.ErrBadCode) && v.code == "":
				visit.Code = ""
			default:
				return err
			}
		}
	})
	return answer, err
}

// showPlace answers a visitor who has a place: inside, or in line.
func (v *visit) showPlace(answer *engine.Answer) {
	if answer.State == room.Inside || answer.Pass != "" {
		v.inside(answer)
		return
	}
	v.setTicket(answer)
	v.retryAfter(answer.NextPoll)
	switch v.kind {
	case navigation:
		v.show(cmp.Or(v.site.WaitingStatus, http.StatusOK), v.linePage(answer))
	case program:
		v.writeJSON(http.StatusAccepted, "application/json", publicJSON(nil, answer))
	case part:
		v.respond(http.StatusServiceUnavailable, problem{}, nil)
	}
}

// setTicket sets the cookie of a ticket that is new, was signed again with a newer key, or
// has a name of before.
func (v *visit) setTicket(answer *engine.Answer) {
	if v.kind == part || answer.Ticket == "" {
		return
	}
	plain := v.door.ticketCookie
	if name, _ := v.sentAs(plain); answer.Ticket != v.ticket || name != v.prefix+plain {
		v.setCookie(plain, answer.Ticket, ticketAge)
	}
}

// linePage returns the page of a visitor in line.
func (v *visit) linePage(answer *engine.Answer) *Page {
	kind := KindWaiting
	opens := v.settings.OpensAt
	before := opens.After(time.Now())
	if answer.Position == 0 {
		kind = KindDrawing
	} else if before {
		kind = KindOpening
	}
	page := v.newPage(kind)
	if before {
		page.Opens = v.words().opens(opens)
	}
	old := parseLineNote(v.cookie(v.door.lineCookie), v.words())
	note := lineNote{start: max(old.start, answer.Position), lost: old.lost, joined: old.joined}
	if answer.New {
		note = lineNote{start: answer.Position, lost: v.lost, joined: time.Now().Unix()}
	}
	if note != old {
		v.setCookie(v.door.lineCookie, note.String(), ticketAge)
	}
	if note.lost != "" {
		page.Notices = append(page.Notices, v.words().Gone[note.lost])
	}
	page.Refresh = seconds(answer.NextPoll)
	page.setLine(answer, note.start)
	return page
}

// inside lets a visitor through.
func (v *visit) inside(answer *engine.Answer) {
	if most := v.site.PassClients; most > 0 && !v.gate.shares.use(holder{v.door.room, answer.ID}, v.client, most, time.Now()) {
		v.later(http.StatusTooManyRequests, KindShared, "shared", errShared, shareTime)
		return
	}
	if v.kind != part {
		v.setTicket(answer)
		if answer.Pass != "" && (v.proof == "" || time.Until(passEnds(v.proof)) < freshPass) {
			v.setCookie(v.door.passCookie, answer.Pass, passAge)
		}
		if answer.State == room.Called {
			v.setCookie(v.door.lineCookie, lineNote{}.String(), max(v.settings.ClaimWindow, time.Second))
		} else if _, sent := v.sentAs(v.door.lineCookie); sent {
			v.cameIn()
		}
	}
	if answer.Ticket != "" {
		v.ticket = answer.Ticket
	}
	v.pass(answer)
}

// errShared: [Site].PassClients other addresses use the visitor's pass.
var errShared = errors.New("this place is in use from as many other addresses as may use it; try again when it is not")

// cameIn ends the note of a visitor who was in line.
func (v *visit) cameIn() {
	if waited, known := parseLineNote(v.cookie(v.door.lineCookie), v.words()).waited(time.Now()); known {
		v.gate.metrics.waits.WithLabelValues(v.door.room).Observe(waited.Seconds())
	}
	v.setCookie(v.door.lineCookie, "", 0)
}

// comeBack lets a visitor who was let in without a cookie claim with a request that needs no
// pass, as for a style sheet. Such a visitor has both cookies until then.
func (v *visit) comeBack() {
	if _, provisional := v.sentAs(v.door.lineCookie); provisional && v.proof != "" {
		_, _ = v.askPass() // the request is let through in any case
	}
}

// pass sends a request on, with the headers of a visitor who is inside, or without.
func (v *visit) pass(answer *engine.Answer) {
	v.w.Header().Del(WaitHeader)
	if v.script {
		v.answerScript(answer)
		return
	}
	r := new(http.Request)
	*r = *v.r
	r.Header = make(http.Header, len(v.r.Header)+len(visitorHeaders))
	maps.Copy(r.Header, v.r.Header)
	for _, name := range visitorHeaders {
		delete(r.Header, name)
	}
	if answer != nil {
		r.Header.Set(PassHeader, answer.Pass)
		r.Header.Set(VisitorHeader, strconv.FormatInt(answer.ID, 10))
		r.Header.Set(RoomHeader, v.door.room)
	}
	w := &releaser{ResponseWriter: v.w, visit: v}
	v.next.ServeHTTP(w, r)
	w.begin() // a handler that writes nothing has answered too
}

// refuse answers an error of the engine.
func (v *visit) refuse(err error) {
	var limit *engine.LimitError
	switch {
	case v.r.Context().Err() != nil:
		return // the client has gone
	case unavailable(err):
		if v.settings.OnStoreFailure == room.FailOpen && (v.next != nil || v.script) {
			v.failed(err)
			v.pass(nil)
			return
		}
		v.unavailable(err)
	case errors.Is(err, room.ErrLineFull):
		v.later(http.StatusServiceUnavailable, KindFull, "line_full", err, 30*time.Second)
	case errors.Is(err, room.ErrNotOpen):
		v.notOpen(err)
	case errors.Is(err, room.ErrSoldOut):
		v.respond(http.StatusForbidden, problem{Code: "sold_out", Detail: err.Error()}, v.newPage(KindSoldOut))
	case errors.Is(err, room.ErrEnded):
		v.respond(http.StatusForbidden, problem{Code: "ended", Detail: err.Error()}, v.newPage(KindEnded))
	case errors.Is(err, engine.ErrUninvited):
		v.respond(http.StatusForbidden, problem{Code: "uninvited", Detail: err.Error()}, v.newPage(KindUninvited))
	case errors.Is(err, engine.ErrBadCode):
		page := v.newPage(KindCode)
		page.Notices, page.Return, page.Retry = nil, localPath(v.r.PostFormValue("to")), true
		v.respond(http.StatusForbidden, problem{Code: "bad_code", Detail: err.Error()}, page)
	case errors.As(err, &limit):
		v.later(http.StatusTooManyRequests, KindLimited, "limited", err, limit.RetryAfter)
	default: // there is no such room; it may be created again
		v.failed(err)
		v.later(http.StatusServiceUnavailable, KindUnavailable, "no_room", room.ErrNoRoom, 5*time.Second)
	}
}

// unavailable answers that the gate cannot decide now.
func (v *visit) unavailable(err error) {
	v.failed(err)
	v.later(http.StatusServiceUnavailable, KindUnavailable, "unavailable", room.ErrUnavailable, 5*time.Second)
}

// later answers that a later request may succeed. Pages refresh after up to 1.5 times as
// long, so that not all come at once.
func (v *visit) later(status int, kind Kind, code string, err error, after time.Duration) {
	v.retryAfter(after)
	page := v.newPage(kind)
	page.Retry = true
	page.Refresh = seconds(after + rand.N(after/2+time.Second))
	v.respond(status, problem{Code: code, Detail: err.Error()}, page)
}

func (v *visit) notOpen(err error) {
	from := v.settings.PrequeueFrom
	if from.IsZero() {
		from = v.settings.OpensAt
	}
	after := max(time.Until(from), time.Second)
	v.retryAfter(after)
	page := v.newPage(KindNotOpen)
	if !from.IsZero() {
		page.Opens = v.words().opens(from)
	}
	// Browsers cut timers of a day or more short, and clocks differ.
	page.Refresh = seconds(min(after, 5*time.Minute) + rand.N(5*time.Second))
	v.respond(http.StatusServiceUnavailable, problem{Code: "not_open", Detail: err.Error()}, page)
}
