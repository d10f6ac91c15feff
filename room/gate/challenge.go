package gate

import (
	"context"
	"net/http"
	"net/netip"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/room"
)

// Challenge is a test that a visitor has to pass before it may join. It is safe for
// concurrent use.
type Challenge interface {
	// Passed reports whether the sender of a request has passed. It is called for each
	// page and program that would join, which lets a challenge decide by headers alone,
	// and for the form with the widget, whose fields are then in PostForm. An error means
	// that the service cannot be reached. Client is invalid if it is not known; ctx ends
	// after ChallengeTime.
	Passed(ctx context.Context, r *http.Request, client netip.Addr) (bool, error)
	// Widget returns what the page shows within a form. Programs cannot pass it.
	Widget(lang string) *Widget
}

// Widget is a part of the page that gives a challenge its proof.
type Widget struct {
	// HTML is within a form that is sent to the gate.
	HTML template.HTML
	// Script is the URL of a script; empty: none.
	Script string
	// Origins are the origins from which the page may load scripts, styles, images and
	// frames, as in https://challenges.cloudflare.com.
	Origins []string
}

// challenged reports whether the visitor has passed, or there is no challenge.
func (v *visit) challenged() (bool, error) {
	challenge := v.gate.options.Challenge
	if challenge == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), ChallengeTime)
	defer cancel()
	return challenge.Passed(ctx, v.r, v.client)
}

// askToPass shows the challenge.
func (v *visit) askToPass() {
	page := v.newPage(KindChallenge)
	page.Widget = v.gate.options.Challenge.Widget(v.words().Lang)
	v.respond(http.StatusForbidden, problem{Code: "challenge",
		Detail: "a person has to join by opening the page in a browser first; its cookies then serve programs too"}, page)
}

// enterByForm joins with the proof of the widget. A visitor who has a place keeps it.
func (v *visit) enterByForm() {
	if err := v.findSettings(); err != nil {
		v.refuse(err)
		return
	}
	// The fields are there for Passed.
	to := localPath(v.r.PostFormValue("to"))
	if v.ticket != "" {
		if _, err := v.askTicket(false); err == nil {
			v.redirect(to)
			return
		}
	}
	passed, err := v.challenged()
	if err != nil {
		v.unavailable(err)
		return
	}
	if passed {
		var answer room.Answer
		if answer, err = v.enter(); err != nil {
			v.refuse(err)
			return
		}
		v.kind = navigation
		v.setTicket(&answer)
	}
	v.redirect(to) // there a visitor who has not passed is asked again
}
