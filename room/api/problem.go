package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/watch"
)

// The codes of problems: what a caller may branch on. Those of all parts are described in
// package internal/edge/problem.
const (
	// CodeNoRoom: the room does not exist.
	CodeNoRoom = "no_room"
	// CodeNoVisitor: no visitor of that key or ticket waits or is inside.
	CodeNoVisitor = "no_visitor"
	// CodeBadTicket: the ticket is missing, or is not one of this room.
	CodeBadTicket = "bad_ticket"
	// CodeBadToken: the visitor's token is not valid; the detail says why.
	CodeBadToken = "bad_token"
	// CodeBadCode: the code that a visitor enters with is not valid; the detail says why.
	CodeBadCode = "bad_code"
	// CodeNoToken: a visitor's key was given without the token that it needs.
	CodeNoToken = "no_token"
	// CodeUninvited: the room is for visitors with a key only.
	CodeUninvited = "uninvited"
	// CodeGone: the place does not exist any more; Reason says why.
	CodeGone = "gone"
	// CodeNotOpen: visitors may not come to wait yet.
	CodeNotOpen = "not_open"
	// CodeEnded: visitors may not come any more.
	CodeEnded = "ended"
	// CodeSoldOut: visitors may not come any more, because there is nothing left.
	CodeSoldOut = "sold_out"
	// CodeLineFull: the queue is at its maximum; retry after Retry-After.
	CodeLineFull = "line_full"
	// CodeTooManyJoins: too many visitors came from this address; see Retry-After.
	CodeTooManyJoins = "too_many_joins"
	// CodeNotRenewable: the pass may not be renewed, or not once more.
	CodeNotRenewable = "not_renewable"
	// CodeQuota: the account may have no more rooms. A retry helps only after it has removed one, or has a higher quota.
	CodeQuota = problem.Quota
	// CodeTooManyRooms: the number of rooms is at its maximum.
	CodeTooManyRooms = "too_many_rooms"
	// CodeRingFull: no key may be added to the ring now.
	CodeRingFull = "ring_full"

	CodeNotFound    = problem.NotFound
	CodeInvalid     = problem.Invalid
	CodeConflict    = problem.Conflict
	CodeTooLarge    = problem.TooLarge
	CodeMediaType   = problem.MediaType
	CodeMethod      = problem.Method
	CodeCrossOrigin = problem.CrossOrigin
	CodeTimeout     = problem.Timeout
	CodeBusy        = problem.Busy
	CodeFull        = problem.Full
	CodeUnavailable = problem.Unavailable
	CodeInternal    = problem.Internal
)

// Problem is an error as RFC 9457 defines it, with a code and further members:
// Errors with CodeInvalid, Reason and ID with CodeGone.
type Problem = problem.Problem

// Delays after which a retry may succeed.
const (
	retrySoon = 2 * time.Second
	retryLate = 10 * time.Second
)

// refuse returns the problem of an error of the engine, or nil.
func refuse(err error) *edge.Error {
	var settings *room.SettingsError
	var key *room.KeyError
	var gone *room.GoneError
	var limited *engine.LimitError
	var quota *room.QuotaError
	switch {
	case errors.As(err, &settings):
		return edge.Invalid(settings.Field, settings.Why)
	case errors.As(err, &key):
		return edge.Invalid("visitor", key.Why)
	case errors.As(err, &gone):
		e := edge.Refuse(http.StatusGone, CodeGone, gone.Error())
		e.Reason, e.ID = string(gone.Reason), gone.ID
		return e
	case errors.As(err, &quota):
		return edge.Refuse(http.StatusTooManyRequests, CodeQuota, quota.Error())
	case errors.Is(err, engine.ErrBadToken):
		return edge.Refuse(http.StatusForbidden, CodeBadToken, err.Error())
	case errors.Is(err, engine.ErrBadCode):
		return edge.Refuse(http.StatusForbidden, CodeBadCode, err.Error())
	case errors.As(err, &limited):
		return edge.Refuse(http.StatusTooManyRequests, CodeTooManyJoins, limited.Error()).RetryAfter(limited.RetryAfter)
	}
	for _, row := range refusals {
		if !errors.Is(err, row.err) {
			continue
		}
		e := edge.Refuse(row.status, row.code, row.err.Error()+row.advice).RetryAfter(row.after)
		if row.status >= http.StatusInternalServerError && row.code != CodeLineFull && row.code != CodeBusy {
			e = e.Fault(err)
		}
		return withChallenge(e)
	}
	return nil
}

// withChallenge adds the header that a 401 must have.
func withChallenge(e *edge.Error) *edge.Error {
	if e.Status == http.StatusUnauthorized {
		return e.Set("WWW-Authenticate", `Bearer realm="room"`)
	}
	return e
}

// refusals are the errors of the engine and of the hub that carry no data.
var refusals = []struct {
	err    error
	status int
	code   string
	advice string
	after  time.Duration
}{
	{room.ErrNoRoom, http.StatusNotFound, CodeNoRoom, "", 0},
	{room.ErrNoVisitor, http.StatusNotFound, CodeNoVisitor, "", 0},
	{engine.ErrBadTicket, http.StatusUnauthorized, CodeBadTicket, ": enter it for a ticket", 0},
	{engine.ErrUninvited, http.StatusForbidden, CodeUninvited, "", 0},
	{engine.ErrNoToken, http.StatusForbidden, CodeNoToken, ": send it in the header Sluice-Token, or leave the key out", 0},
	{room.ErrNotOpen, http.StatusForbidden, CodeNotOpen, "", 0},
	{room.ErrSoldOut, http.StatusForbidden, CodeSoldOut, "", 0},
	{room.ErrEnded, http.StatusForbidden, CodeEnded, "", 0},
	{room.ErrLineFull, http.StatusServiceUnavailable, CodeLineFull, ": try again later", retryLate},
	{room.ErrNotRenewable, http.StatusConflict, CodeNotRenewable, "", 0},
	{room.ErrConflict, http.StatusConflict, CodeConflict, ": read it and try again", 0},
	{room.ErrTooManyRooms, http.StatusConflict, CodeTooManyRooms, "", 0},
	{engine.ErrRingFull, http.StatusConflict, CodeRingFull, "", 0},
	{watch.ErrTooMany, http.StatusServiceUnavailable, CodeBusy, ": poll instead, or try again later", retryLate},
	{watch.ErrClosed, http.StatusServiceUnavailable, CodeUnavailable, ": the server is shutting down; try again when it is back", retrySoon},
	{room.ErrUnavailable, http.StatusServiceUnavailable, CodeUnavailable, ": try again; places are kept", retrySoon},
	{room.ErrFull, http.StatusInsufficientStorage, CodeFull, ": free space where the store is", 0},
	{room.ErrBroken, http.StatusServiceUnavailable, CodeUnavailable, ": restart the server; places are kept", retryLate},
	{room.ErrClosed, http.StatusServiceUnavailable, CodeUnavailable, ": the server is shutting down; try again when it is back", retrySoon},
}
