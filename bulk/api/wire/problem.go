package wire

import "strings"

// The codes of problems: what a caller may branch on.
const (
	// CodeNotFound: there is no such action or schedule, or no such path.
	CodeNotFound = "not_found"
	// CodeInvalid: the request is not what it should be; Errors names the fields.
	CodeInvalid = "invalid"
	// CodeBadLine: a line of an upload is not what it should be; see Line.
	CodeBadLine = "bad_line"
	// CodeExists: an action of that id exists with another body.
	CodeExists = "exists"
	// CodeOffset: an upload begins beyond what was received; see Received.
	CodeOffset = "offset"
	// CodeTotal: a seal's total is not what was received; see Total, Received.
	CodeTotal = "total"
	// CodeStatus: the action's status does not allow that, or a run of a schedule
	// cannot be made now.
	CodeStatus = "status"
	// CodeConflict: others change the same at this time; try again.
	CodeConflict = "conflict"
	// CodeTooLarge: the body is larger than allowed.
	CodeTooLarge = "too_large"
	// CodeMediaType: the body's type or encoding is not one that is read.
	CodeMediaType = "media_type"
	// CodeMethod: the path does not have that method.
	CodeMethod = "method"
	// CodeCrossOrigin: a page of another origin has sent the request.
	CodeCrossOrigin = "cross_origin"
	// CodeTimeout: the body did not arrive in time.
	CodeTimeout = "timeout"
	// CodeBusy: too much is going on; try again after Retry-After.
	CodeBusy = "busy"
	// CodeFull: the store has too little room left to accept more.
	CodeFull = "full"
	// CodeUnavailable: the store cannot be used now; try again after Retry-After.
	CodeUnavailable = "unavailable"
	// CodeInternal: a mistake of the server, which is in its log.
	CodeInternal = "internal"
)

// Problem is an error as RFC 9457 has it, with members of our own: code and
// those after it.
type Problem struct {
	Title  string `json:"title" doc:"The meaning of the status."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What was wrong, and what would be right."`
	Code   string `json:"code" doc:"The kind of the problem, one word that programs can rely on."`
	// Errors, Line, Received and Total are there where they apply.
	Errors   []FieldError `json:"errors,omitempty" nullable:"false"`
	Line     int64        `json:"line,omitempty" doc:"The line of the upload that was refused, from 1."`
	Received *int64       `json:"received,omitempty" doc:"How many jobs of the action are durable."`
	Total    *int64       `json:"total,omitempty" doc:"The total that the seal gave."`
}

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	Field  string `json:"field" doc:"The field, such as target.url, or the parameter or header."`
	Detail string `json:"detail"`
}

func (e FieldError) String() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// Join puts the errors of several fields into one text.
func Join(errors []FieldError) string {
	texts := make([]string, len(errors))
	for i, e := range errors {
		texts[i] = e.String()
	}
	return strings.Join(texts, "; ")
}
