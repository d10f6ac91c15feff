package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/watch"
)

// The codes of problems: what a caller may branch on.
const (
	// CodeNotFound: there is no such path.
	CodeNotFound = "not_found"
	// CodeNoRoom: there is no such room.
	CodeNoRoom = "no_room"
	// CodeNoVisitor: nobody of that key or ticket waits or is inside.
	CodeNoVisitor = "no_visitor"
	// CodeInvalid: the request is not what it should be; Errors names the fields.
	CodeInvalid = "invalid"
	// CodeBadTicket: there is no ticket, or it is not one of this room.
	CodeBadTicket = "bad_ticket"
	// CodeGone: the place does not exist any more; Reason says why.
	CodeGone = "gone"
	// CodeNotOpen: one cannot come to wait yet.
	CodeNotOpen = "not_open"
	// CodeEnded: nobody may come any more.
	CodeEnded = "ended"
	// CodeLineFull: as many wait as may; try again after Retry-After.
	CodeLineFull = "line_full"
	// CodeTooManyJoins: too many came from this address; see Retry-After.
	CodeTooManyJoins = "too_many_joins"
	// CodeNotRenewable: the pass may not be renewed, or not once more.
	CodeNotRenewable = "not_renewable"
	// CodeConflict: the room is being changed by others; try again.
	CodeConflict = "conflict"
	// CodeTooManyRooms: there are as many rooms as there may be.
	CodeTooManyRooms = "too_many_rooms"
	// CodeRingFull: no key may be added to the ring now.
	CodeRingFull = "ring_full"
	// CodeTooLarge: the body is larger than allowed.
	CodeTooLarge = "too_large"
	// CodeMediaType: the body's type is not one that is read.
	CodeMediaType = "media_type"
	// CodeMethod: the path does not have that method.
	CodeMethod = "method"
	// CodeCrossOrigin: a page of another origin has sent what only operators may.
	CodeCrossOrigin = "cross_origin"
	// CodeTimeout: the body did not arrive in time.
	CodeTimeout = "timeout"
	// CodeBusy: as many streams are open as may be; try again after Retry-After.
	CodeBusy = "busy"
	// CodeFull: the store has no room left to accept more.
	CodeFull = "full"
	// CodeUnavailable: the store cannot be used now; try again after Retry-After.
	CodeUnavailable = "unavailable"
	// CodeInternal: a mistake of the server, which is in its log.
	CodeInternal = "internal"
)

// Problem is an error as RFC 9457 has it, with members of our own: code and
// those after it.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	// Errors are there for CodeInvalid, Reason and ID for CodeGone.
	Errors []FieldError `json:"errors,omitempty"`
	Reason room.Reason  `json:"reason,omitempty"`
	ID     int64        `json:"id,omitempty"`
}

// problemError is a Problem as an error.
type problemError struct {
	Problem
	retryAfter time.Duration
}

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	// Field is as in "capacity" or "routes[2].path", or a parameter's name.
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (p *problemError) Error() string { return p.Detail }

func newProblem(status int, code, detail string) *problemError {
	return &problemError{Problem: Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}}
}

func (p *problemError) after(d time.Duration) *problemError {
	p.retryAfter = d
	return p
}

// invalid refuses one field.
func invalid(field, why string) *problemError {
	p := newProblem(http.StatusUnprocessableEntity, CodeInvalid, field+": "+why)
	p.Errors = []FieldError{{field, why}}
	return p
}

func tooLarge(most int) *problemError {
	return newProblem(http.StatusRequestEntityTooLarge, CodeTooLarge, "the body has more than "+strconv.Itoa(most)+" bytes")
}

// When trying again may help.
const (
	retrySoon = 2 * time.Second
	retryLate = 10 * time.Second
)

// problemOf makes a problem of an error; nil if it is one that nobody expected.
func problemOf(e *exchange, err error) *problemError {
	var done *problemError
	var settings *room.SettingsError
	var key *room.KeyError
	var gone *room.GoneError
	var limited *room.LimitError
	switch {
	case errors.As(err, &done):
		return done
	case errors.As(err, &settings):
		return invalid(settings.Field, settings.Why)
	case errors.As(err, &key):
		return invalid("visitor", key.Why)
	case errors.As(err, &gone):
		p := newProblem(http.StatusGone, CodeGone, gone.Error())
		p.Reason, p.ID = gone.Reason, gone.ID
		return p
	case errors.As(err, &limited):
		return newProblem(http.StatusTooManyRequests, CodeTooManyJoins, limited.Error()).after(limited.RetryAfter)
	}
	for _, row := range refusals {
		if errors.Is(err, row.err) {
			return newProblem(row.status, row.code, row.err.Error()+row.advice).after(row.after)
		}
	}
	if e.r.Context().Err() != nil {
		return newProblem(http.StatusServiceUnavailable, CodeUnavailable, "the request ended before its answer").after(retrySoon)
	}
	return nil
}

// refusals are the errors of the engine and of the hub that say nothing but
// themselves.
var refusals = []struct {
	err    error
	status int
	code   string
	advice string
	after  time.Duration
}{
	{room.ErrNoRoom, http.StatusNotFound, CodeNoRoom, "", 0},
	{room.ErrNoVisitor, http.StatusNotFound, CodeNoVisitor, "", 0},
	{room.ErrBadTicket, http.StatusUnauthorized, CodeBadTicket, ": enter it for a ticket", 0},
	{room.ErrNotOpen, http.StatusForbidden, CodeNotOpen, "", 0},
	{room.ErrEnded, http.StatusForbidden, CodeEnded, "", 0},
	{room.ErrLineFull, http.StatusServiceUnavailable, CodeLineFull, ": try again later", retryLate},
	{room.ErrNotRenewable, http.StatusConflict, CodeNotRenewable, "", 0},
	{room.ErrConflict, http.StatusConflict, CodeConflict, ": look at it and try again", 0},
	{room.ErrTooManyRooms, http.StatusConflict, CodeTooManyRooms, "", 0},
	{room.ErrRingFull, http.StatusConflict, CodeRingFull, "", 0},
	{watch.ErrTooMany, http.StatusServiceUnavailable, CodeBusy, ": poll instead, or try again later", retryLate},
	{watch.ErrClosed, http.StatusServiceUnavailable, CodeUnavailable, ": the server is shutting down; try again when it is back", retrySoon},
	{room.ErrUnavailable, http.StatusServiceUnavailable, CodeUnavailable, ": try again; places are kept", retrySoon},
	{room.ErrFull, http.StatusInsufficientStorage, CodeFull, ": make room where the store is", 0},
	{room.ErrBroken, http.StatusServiceUnavailable, CodeUnavailable, ": the server must be started again; places are kept", retryLate},
	{room.ErrClosed, http.StatusServiceUnavailable, CodeUnavailable, ": the server is shutting down; try again when it is back", retrySoon},
}

// refuse answers with the problem of an error, and logs what is the server's fault.
func (s *server) refuse(e *exchange, err error) {
	p := problemOf(e, err)
	if p == nil {
		p = newProblem(http.StatusInternalServerError, CodeInternal, "an internal error, which is in the server's log")
	}
	if p.Status >= http.StatusInternalServerError && p.Code != CodeLineFull && p.Code != CodeBusy && e.r.Context().Err() == nil {
		s.log.write(e, p, err)
	}
	header := e.w.Header()
	header.Set("Content-Type", "application/problem+json")
	header["Cache-Control"] = noStore
	if p.retryAfter > 0 {
		seconds := (p.retryAfter + time.Second - 1) / time.Second
		header.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="room"`)
	}
	text, err := json.Marshal(p.Problem)
	if err != nil {
		s.log.logger.ErrorContext(e.r.Context(), "problem cannot be written", "error", err)
	}
	e.w.WriteHeader(p.Status)
	_, _ = e.w.Write(text) // The client has gone if it fails.
}

// faultLog logs faults, each code once in a second: a store that is away fails every
// request.
type faultLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	logged map[string]time.Time
}

func (l *faultLog) write(e *exchange, p *problemError, err error) {
	now := time.Now()
	l.mu.Lock()
	before, was := l.logged[p.Code]
	recent := was && now.Sub(before) < time.Second
	if !recent {
		if l.logged == nil {
			l.logged = map[string]time.Time{}
		}
		l.logged[p.Code] = now
	}
	l.mu.Unlock()
	if !recent {
		l.logger.ErrorContext(e.r.Context(), "room request failed", "status", p.Status, "room", e.room, "error", err)
	}
}
