package gate

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/watch"
)

//go:embed release.js
var releaseScript []byte

//go:embed proof.js
var proofScript []byte

// ScriptPath is where apps of one page get their script; see sluice.js.
const ScriptPath = ownPrefix + "sluice.js"

//go:embed sluice.js
var appScript []byte

// ownRoom returns the room of the site whose own path a path is, or nil.
func (s *site) ownRoom(path string) *door {
	name, own := strings.CutPrefix(path, ownPrefix)
	name, _, below := strings.Cut(name, "/")
	if !own || !below {
		return nil
	}
	return s.doors[name]
}

// ownPaths serves the paths below /.sluice/{room}/.
func (g *Gate) ownPaths() *http.ServeMux {
	mux := http.NewServeMux()
	serve := func(method, name string, answer func(*visit)) {
		mux.HandleFunc(method+" "+base("{room}")+name, func(w http.ResponseWriter, r *http.Request) {
			s := g.siteOf(r.Host)
			if s == nil || s.doors[r.PathValue("room")] == nil { // the sites have changed since
				http.NotFound(w, r)
				return
			}
			answer(g.visit(s, s.doors[r.PathValue("room")], w, r))
		})
	}
	serve("GET", "status", (*visit).status)
	serve("GET", "left", (*visit).left)
	serve("GET", "release.js", func(v *visit) { serveScript(v.w, releaseScript) })
	serve("GET", "proof.js", func(v *visit) { serveScript(v.w, proofScript) })
	serve("POST", "leave", own((*visit).leave))
	serve("POST", "renew", own((*visit).renew))
	serve("POST", "join", own((*visit).rejoin))
	serve("POST", "enter", own((*visit).enterHere))
	serve("POST", "code", own((*visit).enterByCode))
	if g.streams != nil {
		serve("GET", "watch", (*visit).watch)
	}
	return mux
}

// sameSite detects forms that another site has sent.
var sameSite = http.NewCrossOriginProtection()

// own refuses forms that another site has sent, and bounds forms.
func own(answer func(*visit)) func(*visit) {
	return func(v *visit) {
		if err := sameSite.Check(v.r); err != nil {
			page := v.newPage(KindRefused)
			page.Notices = nil
			page.Return, page.Retry = "/", true
			v.respond(http.StatusForbidden, problem{Code: "cross_origin", Detail: err.Error()}, page)
			return
		}
		v.readForm()
		answer(v)
	}
}

// readForm reads a form of the gate's own, within FormTime.
func (v *visit) readForm() {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, MaxForm)
	// A writer that has no connection has no deadline.
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Now().Add(FormTime))
	// A beacon is no form, and an unreadable body has no fields.
	_ = v.r.ParseMultipartForm(MaxForm)
	if _, err := io.Copy(io.Discard, v.r.Body); err != nil {
		// With the deadline left, the server does not wait for the rest.
		v.w.Header().Set("Connection", "close")
		return
	}
	_ = control.SetReadDeadline(time.Time{})
}

// place looks a ticket up for the gate's paths that only programs read.
func (v *visit) place(find func() error) {
	v.kind = program
	err := engine.ErrBadTicket
	if v.ticket != "" {
		err = find()
	}
	var gone *room.GoneError
	switch {
	case err == nil:
	case errors.As(err, &gone):
		v.respond(http.StatusGone, problem{Code: "gone", Reason: gone.Reason, Detail: gone.Error()}, nil)
	case errors.Is(err, engine.ErrBadTicket) && v.ticket != "":
		// It is of an earlier room of that name, or another client's: the page joins again.
		v.respond(http.StatusGone, problem{Code: "gone", Reason: room.Forgotten, Detail: err.Error()}, nil)
	case errors.Is(err, engine.ErrBadTicket):
		v.respond(http.StatusUnauthorized, problem{Code: "bad_ticket",
			Detail: "there is no ticket of this room in the cookie " + v.prefix + v.door.ticketCookie + ": open a page behind the gate"}, nil)
	case errors.Is(err, room.ErrNotRenewable):
		v.respond(http.StatusConflict, problem{Code: "not_renewable", Detail: err.Error()}, nil)
	case errors.Is(err, watch.ErrTooMany), errors.Is(err, watch.ErrClosed):
		v.retryAfter(30 * time.Second)
		v.respond(http.StatusServiceUnavailable, problem{Code: "too_many_streams", Detail: err.Error() + "; ask " + v.door.paths.Status + " instead"}, nil)
	default:
		v.refuse(err)
	}
}

// status answers with the visitor's place.
func (v *visit) status() {
	v.place(func() error {
		answer, err := v.askTicket(false)
		if err != nil {
			return err
		}
		v.writeJSON(http.StatusOK, "application/json", publicJSON(nil, &answer))
		return nil
	})
}

// renew gives a fixed pass its whole time again.
func (v *visit) renew() {
	v.place(func() error {
		var answer engine.Answer
		err := v.ask(func(ctx context.Context) (err error) {
			answer, err = v.gate.rooms.Renew(ctx, v.door.room, v.ticket, v.client)
			return err
		})
		if err != nil {
			return err
		}
		v.setTicket(&answer)
		if answer.Pass != "" {
			v.setCookie(v.door.passCookie, answer.Pass, passAge)
		}
		v.writeJSON(http.StatusOK, "application/json", publicJSON(nil, &answer))
		return nil
	})
}

// enterHere joins from the gate's own path: by the form of a challenge, or by a script.
func (v *visit) enterHere() {
	if v.kind == program {
		v.enterByScript()
		return
	}
	v.enterByForm()
}

// enterByScript takes the place that a request of a page would take, with the same rules, and
// answers 202 in line and 200 inside.
func (v *visit) enterByScript() {
	v.script = true
	if err := v.findSettings(); err != nil {
		v.refuse(err)
		return
	}
	v.admit()
}

// answerScript says that the visitor is inside, or needs no place; then the answer is nil.
func (v *visit) answerScript(answer *engine.Answer) {
	if answer == nil {
		answer = &engine.Answer{State: room.Inside}
	}
	v.writeJSON(http.StatusOK, "application/json", publicJSON(nil, answer))
}

// enterByCode takes the place of a code, and gives up the visitor's own.
func (v *visit) enterByCode() {
	if err := v.findSettings(); err != nil {
		v.refuse(err)
		return
	}
	v.code = v.r.PostFormValue("code")
	answer, err := v.enter()
	if err != nil {
		v.refuse(err)
		return
	}
	if err := v.leaveOther(answer.ID); err != nil {
		v.unavailable(err)
		return
	}
	v.clearCookies()
	v.ticket, v.proof = "", ""
	if v.kind == program {
		v.script = true
		v.showPlace(&answer)
		return
	}
	v.setTicket(&answer)
	v.setCookie(v.door.lineCookie, lineNote{start: answer.Position, joined: time.Now().Unix()}.String(), ticketAge)
	v.redirect(localPath(v.r.PostFormValue("to")))
}

// leaveOther gives up the visitor's place unless it has that number.
func (v *visit) leaveOther(number int64) error {
	if v.ticket == "" {
		return nil
	}
	ctx, cancel := v.asking()
	ticket, err := v.gate.rooms.Parse(ctx, v.door.room, v.ticket, v.client)
	cancel()
	if err == nil && ticket.Number != number {
		return v.giveUp()
	}
	return nil
}

// watch streams the visitor's place.
func (v *visit) watch() {
	v.place(func() error {
		ctx, cancel := v.asking()
		ticket, err := v.gate.rooms.Parse(ctx, v.door.room, v.ticket, v.client)
		cancel()
		if err != nil {
			return err
		}
		return v.gate.streams.Serve(v.w, v.r, watch.Stream{Room: v.door.room, Ticket: ticket, Format: publicJSON})
	})
}

// publicJSON leaves out what cookies hide from scripts. A program has the cookies too.
func publicJSON(b []byte, answer *engine.Answer) []byte {
	public := *answer
	public.Ticket, public.Pass = "", ""
	return public.AppendJSON(b)
}

// leave gives up the place, for the page's button and for beacons.
func (v *visit) leave() {
	if err := v.giveUp(); err != nil {
		if v.r.Context().Err() == nil {
			v.unavailable(err)
		}
		return
	}
	to := localPath(v.r.PostFormValue("to"))
	v.clearCookies()
	if v.kind != navigation {
		v.write(http.StatusNoContent, nil)
		return
	}
	v.redirect(base(v.door.room) + "left?to=" + url.QueryEscape(to))
}

// giveUp leaves by the visitor's ticket or pass. It is no error if the visitor has
// neither, or the place is gone.
func (v *visit) giveUp() error {
	if v.ticket == "" && v.proof == "" {
		return nil
	}
	v.gate.believed.forget(claim{v.door.room, v.proof, v.client})
	err := v.ask(func(ctx context.Context) error {
		name := v.door.room
		err := engine.ErrBadTicket
		if v.ticket != "" {
			err = v.gate.rooms.Leave(ctx, name, v.ticket, v.client)
		}
		if errors.Is(err, engine.ErrBadTicket) && v.proof != "" {
			err = v.gate.rooms.LeavePass(ctx, name, v.proof)
		}
		return err
	})
	if err != nil && unavailable(err) {
		return err
	}
	return nil
}

// left shows that the visitor has left, on a page of its own, so that reloading it does
// not join again.
func (v *visit) left() {
	page := v.newPage(KindLeft)
	page.Return = localPath(v.r.URL.Query().Get("to"))
	page.Rejoin = true
	v.kind = navigation
	v.show(http.StatusOK, page)
}

// rejoin removes the visitor's cookies, and redirects to the page that joins again.
func (v *visit) rejoin() {
	to := localPath(v.r.PostFormValue("to"))
	v.clearCookies()
	v.redirect(to)
}

// redirect sends the browser to a path, with GET.
func (v *visit) redirect(to string) {
	v.w.Header().Set("Location", to)
	v.write(http.StatusSeeOther, nil)
}

// serveScript answers with a script, which all visitors may share.
func serveScript(w http.ResponseWriter, script []byte) {
	header := w.Header()
	header.Set("Content-Type", "text/javascript; charset=utf-8")
	header.Set("Cache-Control", "public, max-age=3600")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(script) // The client has gone if it fails.
}
