package api

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/proxied"
	"github.com/sluice-project/sluice/room/watch"
)

func (s *server) client(e *exchange) netip.Addr { return proxied.Client(e.r, s.proxies) }

// bearer returns the ticket that is shown with the request.
func bearer(e *exchange) (string, error) {
	const scheme = "Bearer "
	value := e.r.Header.Get("Authorization")
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", newProblem(http.StatusUnauthorized, CodeBadTicket, "there is no ticket: want the header Authorization: Bearer <ticket>")
	}
	return strings.TrimSpace(value[len(scheme):]), nil
}

var enterNames = []string{"visitor"}

func (s *server) enter(e *exchange) error {
	visit := room.Visit{Client: s.client(e)}
	if len(e.in) > 0 {
		var visitor [1]text
		if err := members(e.in, enterNames, visitor[:]); err != nil {
			return err
		}
		visit.Key = visitor[0].value
	}
	answer, err := s.engine.Enter(e.r.Context(), e.room, visit)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if answer.New {
		status = http.StatusCreated
	}
	return e.answerPlace(status, &answer)
}

func (e *exchange) answerPlace(status int, answer *room.Answer) error {
	e.out = answer.AppendJSON(e.out[:0])
	return e.answer(status)
}

func (s *server) leave(e *exchange) error {
	ticket, err := bearer(e)
	if err != nil {
		return err
	}
	if err := s.engine.Leave(e.r.Context(), e.room, ticket, s.client(e)); err != nil {
		return err
	}
	return e.noContent()
}

func (s *server) renew(e *exchange) error {
	ticket, err := bearer(e)
	if err != nil {
		return err
	}
	answer, err := s.engine.Renew(e.r.Context(), e.room, ticket, s.client(e))
	if err != nil {
		return err
	}
	return e.answerPlace(http.StatusOK, &answer)
}

// watch opens a stream. The ticket may be in the query: EventSource, by which
// browsers read streams, sets no headers.
func (s *server) watch(e *exchange) error {
	ticket, err := bearer(e)
	if shown := e.query.Get("ticket"); err != nil && shown != "" {
		ticket, err = shown, nil
	}
	if err != nil {
		return err
	}
	parsed, err := s.engine.Parse(e.r.Context(), e.room, ticket, s.client(e))
	if err != nil {
		return err
	}
	return s.hub.Serve(e.w, e.r, watch.Stream{Room: e.room, Ticket: parsed, Claim: true})
}
