package problem

import "strings"

// The codes that every part uses. A part adds its own.
const (
	// NotFound: the object, or the path, does not exist.
	NotFound = "not_found"
	// Invalid: the request is not valid; Errors names the fields.
	Invalid = "invalid"
	// Conflict: the state does not allow the change; the detail says what to do.
	Conflict = "conflict"
	// TooLarge: the body is larger than allowed.
	TooLarge = "too_large"
	// MediaType: the type or the encoding of the body is not supported.
	MediaType = "media_type"
	// Method: the path does not support the method.
	Method = "method"
	// CrossOrigin: a page of another origin sent the request.
	CrossOrigin = "cross_origin"
	// Unauthenticated: the request does not show a valid token.
	Unauthenticated = "unauthenticated"
	// Forbidden: the token does not have the right that the request needs.
	Forbidden = "forbidden"
	// Host: the request asks for a host that this server does not know.
	Host = "host"
	// Timeout: the body did not arrive in time.
	Timeout = "timeout"
	// Busy: a bound on concurrent requests is reached; retry after Retry-After.
	Busy = "busy"
	// Quota: the account or the tenant may have no more of it; the detail names the quota.
	Quota = "quota"
	// Full: the store has too little space to accept more.
	Full = "full"
	// Unavailable: the server cannot do it now; retry after Retry-After.
	Unavailable = "unavailable"
	// Internal: the server failed; its log has the reason.
	Internal = "internal"
)

// Problem is an error as RFC 9457 defines it, with a code and further members.
type Problem struct {
	Title  string `json:"title" doc:"The meaning of the status."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What is wrong, and what would be right."`
	Code   string `json:"code" doc:"The kind of the problem, one word that programs can rely on."`
	// The members below are present where they apply.
	Errors   []FieldError `json:"errors,omitempty" nullable:"false" doc:"With code invalid: what is wrong with which field."`
	Line     int64        `json:"line,omitempty" doc:"The line of the upload that is invalid, from 1."`
	Received *int64       `json:"received,omitempty" doc:"How many jobs of the action are durable."`
	Total    *int64       `json:"total,omitempty" doc:"The total that the seal gave."`
	Reason   string       `json:"reason,omitempty" enum:"left,expired,abandoned,revoked,ended,sold_out,forgotten" doc:"With code gone: why the place is gone."`
	ID       int64        `json:"id,omitempty" doc:"With code gone: the visitor's number."`
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

// Join returns the errors of several fields as one text.
func Join(errors []FieldError) string {
	texts := make([]string, len(errors))
	for i, e := range errors {
		texts[i] = e.String()
	}
	return strings.Join(texts, "; ")
}
