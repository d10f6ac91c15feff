package api

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/proxied"
	"github.com/sluice-project/sluice/room/watch"
)

func (s *server) client(e *edge.Exchange) netip.Addr { return proxied.Client(e.R, s.proxies) }

// bearer returns the ticket that is shown with the request.
func bearer(e *edge.Exchange) (string, error) {
	const scheme = "Bearer "
	value := e.R.Header.Get("Authorization")
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", withChallenge(edge.Refuse(http.StatusUnauthorized, CodeBadTicket, "there is no ticket: want the header Authorization: Bearer <ticket>"))
	}
	return strings.TrimSpace(value[len(scheme):]), nil
}

// fromPublic reports whether a request came to a public listener, nobody who keeps the room sent it,
// a page in a browser made it, or it came through a trusted proxy: from there anybody may come, and
// name any visitor.
func (s *server) fromPublic(e *edge.Exchange) bool {
	sender := access.From(e.R.Context())
	return e.Public || !sender.May(access.KeepRoom) || !sender.Room(e.Path("room")) || e.R.Header.Get("Origin") != "" || s.client(e) != proxied.Client(e.R, nil)
}

var enterNames = []string{"visitor", "code"}

func (s *server) enter(e *edge.Exchange) error {
	client := s.client(e)
	visit := room.Visit{Client: client, Shared: proxied.Shared(client, s.proxies), Token: proxied.Token(e.R)}
	if len(e.In) > 0 {
		var given [2]text
		if err := members(e.In, enterNames, given[:]); err != nil {
			return err
		}
		visit.Key, visit.Code = given[0].value, given[1].value
	}
	if visit.Key != "" && visit.Token == "" && s.fromPublic(e) {
		return engine.ErrNoToken
	}
	answer, err := s.engine.Enter(e.R.Context(), e.Path("room"), visit)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if answer.New {
		status = http.StatusCreated
	}
	return answerPlace(e, status, &answer)
}

func answerPlace(e *edge.Exchange, status int, answer *engine.Answer) error {
	e.Out = answer.AppendJSON(e.Out[:0])
	return e.Answer(status)
}

func (s *server) leave(e *edge.Exchange) error {
	ticket, err := bearer(e)
	if err != nil {
		return err
	}
	return e.NoContent(s.engine.Leave(e.R.Context(), e.Path("room"), ticket, s.client(e)))
}

func (s *server) renew(e *edge.Exchange) error {
	ticket, err := bearer(e)
	if err != nil {
		return err
	}
	answer, err := s.engine.Renew(e.R.Context(), e.Path("room"), ticket, s.client(e))
	if err != nil {
		return err
	}
	return answerPlace(e, http.StatusOK, &answer)
}

// watch opens a stream. The ticket may be in the query: EventSource, by which
// browsers read streams, sets no headers.
func (s *server) watch(e *edge.Exchange) error {
	ticket, err := bearer(e)
	if shown := e.Query("ticket"); err != nil && shown != "" {
		ticket, err = shown, nil
	}
	if err != nil {
		return err
	}
	parsed, err := s.engine.Parse(e.R.Context(), e.Path("room"), ticket, s.client(e))
	if err != nil {
		return err
	}
	return s.hub.Serve(e.W, e.R, watch.Stream{Room: e.Path("room"), Ticket: parsed, Claim: true})
}
