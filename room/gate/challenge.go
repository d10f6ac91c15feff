package gate

import (
	"context"
	"html/template"
	"net/http"
	"net/netip"

	"github.com/sluice-project/sluice/room"
)

// Challenge is what a visitor has to pass before it may join. It is safe for
// concurrent use.
type Challenge interface {
	// Passed tells whether the sender of a request has passed. It is asked about
	// each page and program that would join, which lets a challenge decide by headers
	// alone; and about the form with the widget, whose fields are in PostForm by then. An
	// error shows that the line does not answer. Client may be invalid, if it is not
	// known; ctx ends after ChallengeTime.
	Passed(ctx context.Context, r *http.Request, client netip.Addr) (bool, error)
	// Widget is what the page shows within a form. Programs cannot pass it.
	Widget(lang string) *Widget
}

// Widget is a part of the page, from which a challenge gets its proof.
type Widget struct {
	// HTML is within a form that is sent to the gate.
	HTML template.HTML
	// Script is the URL of a script; empty: none.
	Script string
	// Origins are what the page may load scripts, styles, images and frames from, as
	// in https://challenges.cloudflare.com.
	Origins []string
}

// challenged tells whether the visitor has passed, or has nothing to pass.
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
	page.Widget = v.gate.options.Challenge.Widget(v.words.Lang)
	v.tell(http.StatusForbidden, problem{Code: "challenge",
		Detail: "a person has to join by opening the page in a browser first; its cookies then serve programs too"}, page)
}

// enterByForm joins with the proof of the widget. Who has a place already keeps it.
func (v *visit) enterByForm() {
	if err := v.findSettings(); err != nil {
		v.refuse(err)
		return
	}
	// The fields are there for Passed.
	to := localPath(v.r.PostFormValue("to"))
	if v.ticket != "" {
		if _, err := v.askTicket(false); err == nil {
			v.goOn(to)
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
	v.goOn(to) // Who has not passed is asked again there.
}
