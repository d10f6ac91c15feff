package api

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/room"
)

// roomView is a room as operators see it.
type roomView struct {
	Room  string     `json:"room"`
	Mode  room.Mode  `json:"mode"`
	State room.Phase `json:"state"`

	Waiting       int64    `json:"waiting"`
	Inside        int64    `json:"inside"`
	Called        int64    `json:"called"`
	EnteredTotal  int64    `json:"entered_total"`
	AdmittedTotal int64    `json:"admitted_total"`
	MissedTotal   int64    `json:"missed_total"`
	DepartedTotal int64    `json:"departed_total"`
	ExpiredTotal  int64    `json:"expired_total"`
	EventsDropped int64    `json:"events_dropped_total"`
	Outflow       *float64 `json:"outflow_per_second"`

	Paused    bool           `json:"paused"`
	Epoch     int64          `json:"epoch"`
	CreatedAt time.Time      `json:"created_at"`
	Settings  *room.Settings `json:"settings,omitempty"`
}

func viewOf(v *room.View) roomView {
	return roomView{
		Room: v.Room.Name, Mode: v.Room.Settings.Mode, State: v.Phase,
		Waiting: v.Status.Waiting, Inside: v.Status.Inside, Called: v.Status.Called,
		EnteredTotal: v.Status.Entered, AdmittedTotal: v.Status.Admitted, MissedTotal: v.Status.Missed,
		DepartedTotal: v.Status.Departed, ExpiredTotal: v.Status.Expired, EventsDropped: v.Status.EventsDropped,
		Outflow: v.Outflow, Paused: v.Room.Paused, Epoch: v.Room.Epoch, CreatedAt: v.Room.CreatedAt.UTC(),
	}
}

// answerRoom answers with a room and its settings.
func (e *exchange) answerRoom(status int, v *room.View) error {
	view := viewOf(v)
	view.Settings = &v.Room.Settings
	return e.answerValue(status, view)
}

// listRooms leaves the settings out: with the rules of a thousand rooms the list
// would have no bound to speak of.
func (s *server) listRooms(e *exchange) error {
	views, err := s.engine.Rooms(e.r.Context())
	if err != nil {
		return err
	}
	list := struct {
		Rooms []roomView `json:"rooms"`
	}{make([]roomView, 0, len(views))}
	for i := range views {
		list.Rooms = append(list.Rooms, viewOf(&views[i]))
	}
	return e.answerValue(http.StatusOK, list)
}

func (s *server) showRoom(e *exchange) error {
	view, err := s.engine.Room(e.r.Context(), e.room)
	if err != nil {
		return err
	}
	return e.answerRoom(http.StatusOK, &view)
}

func (s *server) putRoom(e *exchange) error {
	if err := room.ValidName(e.room); err != nil {
		return err
	}
	var settings room.Settings
	if err := json.Unmarshal(e.in, &settings); err != nil {
		var wrong *room.SettingsError
		if errors.As(err, &wrong) {
			return err
		}
		return notJSON(err)
	}
	view, created, err := s.engine.PutRoom(e.r.Context(), e.room, settings)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return e.answerRoom(status, &view)
}

func (s *server) deleteRoom(e *exchange) error {
	if err := s.engine.DeleteRoom(e.r.Context(), e.room); err != nil {
		return err
	}
	return e.noContent()
}

func (s *server) pause(e *exchange) error {
	view, err := s.engine.Pause(e.r.Context(), e.room)
	if err != nil {
		return err
	}
	return e.answerRoom(http.StatusOK, &view)
}

func (s *server) resume(e *exchange) error {
	view, err := s.engine.Resume(e.r.Context(), e.room)
	if err != nil {
		return err
	}
	return e.answerRoom(http.StatusOK, &view)
}

var revokeNames = []string{"visitor", "ticket"}

// revoke sends away one visitor, or without a body all who are inside.
func (s *server) revoke(e *exchange) error {
	var named [2]text
	if err := members(e.in, revokeNames, named[:]); err != nil {
		return err
	}
	visitor, ticket := named[0], named[1]
	var err error
	switch {
	case visitor.given && ticket.given:
		return invalid("ticket", "name one: visitor or ticket")
	case visitor.given:
		err = s.engine.RevokeVisitor(e.r.Context(), e.room, visitor.value)
	case ticket.given:
		err = s.engine.RevokeTicket(e.r.Context(), e.room, ticket.value)
	case len(e.in) > 0 && string(e.in) != "{}":
		return invalid("body", "name a visitor or a ticket, or send no body to revoke all")
	default:
		err = s.engine.RevokeAll(e.r.Context(), e.room)
	}
	if errors.Is(err, room.ErrBadTicket) { // It is not the caller's own.
		return invalid("ticket", err.Error())
	}
	if err != nil {
		return err
	}
	return e.noContent()
}

// lotteryView is what one needs to check a lottery.
type lotteryView struct {
	Method     room.Method `json:"method"`
	Commitment *string     `json:"commitment"`
	OpensAt    *time.Time  `json:"opens_at"`
	Seed       *string     `json:"seed"`
}

// lottery shows the commitment to a seed, and the seed itself once it cannot help
// anybody any more.
func (s *server) lottery(e *exchange) error {
	view, err := s.engine.Room(e.r.Context(), e.room)
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
	return e.answerValue(http.StatusOK, shown)
}

func (s *server) rotateKeys(e *exchange) error {
	if err := s.engine.RotateKeys(e.r.Context()); err != nil {
		return err
	}
	return e.noContent()
}

// jwks answers with the keys by which passes can be checked.
func (s *server) jwks(e *exchange) error {
	keys, err := s.engine.JWKS(e.r.Context())
	if err != nil {
		return err
	}
	e.w.Header().Set("Content-Type", "application/jwk-set+json")
	e.w.Header().Set("Cache-Control", "public, max-age=60")
	_, _ = e.w.Write(keys) // The client has gone if it fails.
	return nil
}
