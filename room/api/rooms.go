package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// roomView is a room as operators see it.
type roomView struct {
	Room  string     `json:"room"`
	Mode  room.Mode  `json:"mode" enum:"teller,park"`
	State room.Phase `json:"state" enum:"open,queueing,paused,closed,sold_out"`

	Waiting       int64    `json:"waiting" doc:"Visitors in the queue that were not called."`
	Inside        int64    `json:"inside" doc:"Visitors that are inside, or were called."`
	Called        int64    `json:"called" doc:"Those of them that have not claimed their slot yet."`
	EnteredTotal  int64    `json:"entered_total" doc:"All visitors that ever entered."`
	AdmittedTotal int64    `json:"admitted_total" doc:"All visitors that came in: those who were called and claimed the slot."`
	MissedTotal   int64    `json:"missed_total" doc:"How often a called visitor did not claim the slot."`
	DepartedTotal int64    `json:"departed_total" doc:"Visitors that were gone before they came in."`
	ExpiredTotal  int64    `json:"expired_total" doc:"Passes that ended."`
	EventsDropped int64    `json:"events_dropped_total" doc:"Events that were not kept, because too many waited to be published."`
	Outflow       *float64 `json:"outflow_per_second" nullable:"true" doc:"How many are admitted per second, over the last minute; null if that is not known."`

	Found     *int64           `json:"found,omitempty" doc:"The capacity or batch in force, where it is auto."`
	Event     *room.Occurrence `json:"event,omitempty" doc:"The event that is on, or the next one, where events repeat."`
	Paused    bool             `json:"paused"`
	Epoch     int64            `json:"epoch" doc:"Raised each time that all passes are revoked."`
	CreatedAt time.Time        `json:"created_at" doc:"When the room was created."`
	Settings  *room.Settings   `json:"settings,omitempty" doc:"All that apply in the mode, defaults included."`
}

// roomsView is a page of rooms without their settings: with the rules of a thousand rooms
// it would be very large.
type roomsView struct {
	Rooms []roomView `json:"rooms" nullable:"false"`
	Next  *string    `json:"next" nullable:"true" doc:"Give this as after for the next page; null if there is none."`
}

func viewOf(v *engine.View) roomView {
	return roomView{
		Found: v.Found, Event: v.Event,
		Room: v.Room.Name, Mode: v.Room.Settings.Mode, State: v.Phase,
		Waiting: v.Status.Waiting, Inside: v.Status.Inside, Called: v.Status.Called,
		EnteredTotal: v.Status.Entered, AdmittedTotal: v.Status.CameIn(), MissedTotal: v.Status.NoShows,
		DepartedTotal: v.Status.Departed, ExpiredTotal: v.Status.Expired, EventsDropped: v.Status.EventsDropped,
		Outflow: v.Outflow, Paused: v.Room.Paused, Epoch: v.Room.Epoch, CreatedAt: v.Room.CreatedAt.UTC(),
	}
}

// answerRoom answers with a room and its settings.
func answerRoom(e *edge.Exchange, status int, v *engine.View) error {
	view := viewOf(v)
	view.Settings = &v.Room.Settings
	return e.AnswerValue(status, view)
}

func (s *server) listRooms(e *edge.Exchange) error {
	limit, err := e.Number("limit", MaxPage)
	switch {
	case err != nil:
		return err
	case limit == 0:
		return edge.Invalid("limit", "give a number from 1 to 1000")
	case limit < 0:
		limit = MaxPage
	}
	sender := access.From(e.R.Context())
	limited := sender != nil && len(sender.Rooms) > 0
	after, err := edge.RevealCursor(e.R.Context(), limited, e.Query("after"))
	if err != nil {
		return err
	}
	views, more, err := s.engine.Rooms(e.R.Context(), after, int(limit))
	if err != nil {
		return err
	}
	list := roomsView{Rooms: make([]roomView, 0, len(views))}
	for i := range views {
		if sender.Room(views[i].Room.Name) {
			list.Rooms = append(list.Rooms, viewOf(&views[i]))
		}
	}
	if n := len(views); more && n > 0 {
		list.Next = edge.HideCursor(e.R.Context(), limited, &views[n-1].Room.Name)
	}
	return e.AnswerValue(http.StatusOK, list)
}

// within lets a handler run for rooms within the limits of the sender. Others do not exist for the sender.
func within(run func(*edge.Exchange) error) func(*edge.Exchange) error {
	return func(e *edge.Exchange) error {
		if !access.From(e.R.Context()).Room(e.Path("room")) {
			return room.ErrNoRoom
		}
		return run(e)
	}
}

// about returns the handler of an operation that answers with the room.
func about(operation func(context.Context, string) (engine.View, error)) func(*edge.Exchange) error {
	return func(e *edge.Exchange) error {
		view, err := operation(e.R.Context(), e.Path("room"))
		if err != nil {
			return err
		}
		return answerRoom(e, http.StatusOK, &view)
	}
}

func (s *server) putRoom(e *edge.Exchange) error {
	if err := room.ValidName(e.Path("room")); err != nil {
		return err
	}
	var settings room.Settings
	if err := json.Unmarshal(e.In, &settings); err != nil {
		var wrong *room.SettingsError
		if errors.As(err, &wrong) {
			return err
		}
		return notJSON(err)
	}
	view, created, err := s.engine.PutRoom(e.R.Context(), e.Path("room"), settings)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return answerRoom(e, status, &view)
}

func (s *server) reportHealth(e *edge.Exchange) error {
	var health struct {
		Utilization *float64 `json:"utilization"`
	}
	if err := json.Unmarshal(e.In, &health); err != nil {
		return notJSON(err)
	}
	if health.Utilization == nil {
		return edge.Invalid("utilization", "is missing; give a number from 0 to 100, 1 for all that the upstream can serve well")
	}
	view, err := s.engine.ReportHealth(e.R.Context(), e.Path("room"), *health.Utilization)
	if err != nil {
		return err
	}
	return answerRoom(e, http.StatusOK, &view)
}

func (s *server) deleteRoom(e *edge.Exchange) error {
	return e.NoContent(s.engine.DeleteRoom(e.R.Context(), e.Path("room")))
}

var revokeNames = []string{"visitor", "ticket"}

// revoke ends the place of one visitor, or without a body all visits.
func (s *server) revoke(e *edge.Exchange) error {
	var named [2]text
	if err := members(e.In, revokeNames, named[:]); err != nil {
		return err
	}
	visitor, ticket := named[0], named[1]
	var err error
	switch {
	case visitor.given && ticket.given:
		return edge.Invalid("ticket", "name one: visitor or ticket")
	case visitor.given:
		err = s.engine.RevokeVisitor(e.R.Context(), e.Path("room"), visitor.value)
	case ticket.given:
		err = s.engine.RevokeTicket(e.R.Context(), e.Path("room"), ticket.value)
	case len(e.In) > 0 && string(e.In) != "{}":
		return edge.Invalid("body", "name a visitor or a ticket, or send no body to revoke all")
	default:
		err = s.engine.RevokeAll(e.R.Context(), e.Path("room"))
	}
	if errors.Is(err, engine.ErrBadTicket) { // It is not the caller's own ticket.
		return edge.Invalid("ticket", err.Error())
	}
	return e.NoContent(err)
}

// lotteryView is what verifies a lottery.
type lotteryView struct {
	Method     room.Method `json:"method" enum:"fifo,lottery"`
	Commitment *string     `json:"commitment" nullable:"true" doc:"The SHA-256 of the seed, in hexadecimal digits; null if there is no lottery."`
	OpensAt    *time.Time  `json:"opens_at" nullable:"true"`
	Seed       *string     `json:"seed" nullable:"true" doc:"The seed, in hexadecimal digits; null until the room has opened."`
}

// lottery shows the commitment to a seed, and the seed itself once the draw is over.
func (s *server) lottery(e *edge.Exchange) error {
	view, err := s.engine.Room(e.R.Context(), e.Path("room"))
	if err != nil {
		return err
	}
	settings := &view.Room.Settings
	shown := lotteryView{Method: settings.Method}
	if !settings.OpensAt.IsZero() {
		at := settings.OpensAt.UTC()
		shown.OpensAt = &at
	}
	if settings.Method == room.Lottery {
		commitment := room.Commitment(view.Room.Seed)
		shown.Commitment = &commitment
		if !view.Status.Now.Before(view.Room.Opening()) {
			seed := hex.EncodeToString(view.Room.Seed)
			shown.Seed = &seed
		}
	}
	return e.AnswerValue(http.StatusOK, shown)
}

func (s *server) rotateKeys(e *edge.Exchange) error {
	return e.NoContent(s.engine.RotateKeys(e.R.Context()))
}

func (s *server) revokeKeys(e *edge.Exchange) error {
	return e.NoContent(s.engine.RevokeKeys(e.R.Context()))
}

// jwks answers with the keys that verify passes.
func (s *server) jwks(e *edge.Exchange) error {
	keys, err := s.engine.JWKS(e.R.Context())
	if err != nil {
		return err
	}
	e.W.Header().Set("Content-Type", "application/jwk-set+json")
	e.W.Header().Set("Cache-Control", "public, max-age=60")
	_, _ = e.W.Write(keys) // The client has gone if it fails.
	return nil
}
