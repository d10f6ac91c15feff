package gate

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/proxied"
)

// Challenge is a test that a visitor has to pass before it may join. It is safe for
// concurrent use.
type Challenge interface {
	// Passed reports whether a newcomer, the sender of a request, has passed. It is called for
	// each page and program that would join, which lets a challenge decide by headers alone,
	// and for the form with the widget, whose fields are then in PostForm. An error means
	// that the service cannot be reached. Ctx ends after ChallengeTime.
	Passed(ctx context.Context, r *http.Request, who Newcomer) (bool, error)
	// Widget returns what the page shows within a form. Programs cannot pass it.
	Widget(ctx context.Context, who Newcomer) (*Widget, error)
}

// Newcomer is a visitor who would join.
type Newcomer struct {
	Room string
	// Client is invalid if it is not known.
	Client netip.Addr
	// Words are in the visitor's language.
	Words *Words
}

// Widget is a part of the page that gives a challenge its proof.
type Widget struct {
	// Kind is that of the page. Default: KindChallenge.
	Kind Kind
	// HTML is within a form that is sent to the gate.
	HTML template.HTML
	// Script is the URL of a script; empty: none.
	Script string
	// Origins are the origins from which the page may load scripts, styles, images and
	// frames, as in https://challenges.cloudflare.com.
	Origins []string
}

func (v *visit) newcomer() Newcomer { return Newcomer{v.door.room, v.client, v.words()} }

// mayJoin returns why the visitor need not pass the challenge: nobody can join now.
func (v *visit) mayJoin() error {
	if v.gate.options.Challenge == nil || proxied.Token(v.r) != "" { // its subject may have a place
		return nil
	}
	ctx, cancel := v.asking()
	defer cancel()
	return v.gate.rooms.MayEnter(ctx, v.door.room)
}

// challenged reports whether the visitor has passed, or there is no challenge. If the
// challenge's service cannot be reached, ChallengeFailure decides: visitors of a gate that fails
// open join without it.
func (v *visit) challenged() (bool, error) {
	challenge := v.gate.options.Challenge
	if challenge == nil {
		return true, nil
	}
	// A client that hangs up must not make the service seem away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), ChallengeTime)
	defer cancel()
	passed, err := challenge.Passed(ctx, v.r, v.newcomer())
	if err != nil && cmp.Or(v.gate.options.ChallengeFailure, v.settings.OnStoreFailure) == room.FailOpen {
		v.failed(err)
		return true, nil
	}
	return passed, err
}

// proves reports whether a ticket or pass will do: one of the API may be of a visitor who has
// passed no challenge.
func (v *visit) proves(proven bool) bool { return proven || v.gate.options.Challenge == nil }

// provenTicket reports whether the visitor's ticket will do. One that is not valid is refused
// by the question for its place.
func (v *visit) provenTicket() bool {
	if v.gate.options.Challenge == nil {
		return true
	}
	ctx, cancel := v.asking()
	defer cancel()
	ticket, err := v.gate.rooms.Parse(ctx, v.door.room, v.ticket, v.client)
	return err != nil || ticket.Proven
}

// askToPass shows the challenge.
func (v *visit) askToPass() {
	ctx, cancel := v.asking()
	defer cancel()
	widget, err := v.gate.options.Challenge.Widget(ctx, v.newcomer())
	if err != nil {
		v.refuse(err)
		return
	}
	page := v.newPage(cmp.Or(widget.Kind, KindChallenge))
	page.Widget = widget
	v.respond(http.StatusForbidden, problem{Code: "challenge",
		Detail: "a person has to join by opening the page in a browser first; its cookies then serve programs too"}, page)
}

// enterByForm joins with the proof of the widget. A visitor who has a place keeps it.
func (v *visit) enterByForm() {
	if err := v.findSettings(); err != nil {
		v.refuse(err)
		return
	}
	to := v.returnTo(localPath(v.r.PostFormValue("to")))
	hasPlace := false
	if v.ticket != "" {
		_, err := v.askTicket(false)
		hasPlace = err == nil
	}
	if hasPlace && v.provenTicket() {
		v.redirect(to)
		return
	}
	passed, err := v.challenged()
	if err != nil {
		v.unavailable(err)
		return
	}
	if passed {
		if err := v.takeProvenPlace(hasPlace); err != nil {
			v.refuse(err)
			return
		}
	}
	v.redirect(to) // there a visitor who has not passed is asked again
}

// returnTo makes the pages that answer the form those of the path that the visitor wanted: they lead
// there. The fields stay there for Passed.
func (v *visit) returnTo(path string) string {
	wanted, err := url.ParseRequestURI(path)
	if err != nil {
		return v.returnTo("/")
	}
	r := *v.r
	r.Method, r.URL = http.MethodGet, wanted
	v.r = &r
	return path
}

// takeProvenPlace sets the cookie of a visitor who has passed: of the place that the visitor
// has, or of a new one.
func (v *visit) takeProvenPlace(hasPlace bool) (err error) {
	var answer engine.Answer
	if hasPlace {
		ctx, cancel := v.asking()
		defer cancel()
		answer.Ticket, err = v.gate.rooms.Prove(ctx, v.door.room, v.ticket, v.client)
	} else {
		answer, err = v.enter()
	}
	v.kind = navigation
	v.setTicket(&answer)
	return err
}
