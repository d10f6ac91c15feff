package wire

import "github.com/sluice-project/sluice/internal/edge/problem"

// The codes of problems: what a caller may branch on. Those of all parts are described in
// package internal/edge/problem.
const (
	// CodeBadLine: a line of an upload is not valid; see Line.
	CodeBadLine = "bad_line"
	// CodeExists: an action of that id exists with another body.
	CodeExists = "exists"
	// CodeOffset: an upload begins beyond what was received; see Received.
	CodeOffset = "offset"
	// CodeTotal: the total of a seal is not what was received; see Total, Received.
	CodeTotal = "total"
	// CodeStatus: the action's status does not allow the request, or a run of a
	// schedule cannot start now.
	CodeStatus = "status"
	// CodeForbidden: the target of the action is not for its tenant, or the token is not for the tenant or the type.
	CodeForbidden = "forbidden"
	// CodeQuota: the tenant may have no more stored; the detail names the quota. See Received.
	CodeQuota = problem.Quota

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
// Errors, Line, Received and Total, where they apply.
type Problem = problem.Problem

// FieldError says what is wrong with one field of a request.
type FieldError = problem.FieldError
