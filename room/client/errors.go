package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Error is the server's refusal of a request.
type Error struct {
	// Status is that of HTTP, Title its words.
	Status int    `json:"-"`
	Title  string `json:"-"`
	// Code is what a caller may branch on. It is empty if the answer did not come from
	// this API, but from a proxy perhaps.
	Code string `json:"code"`
	// Detail says what was wrong.
	Detail string `json:"detail"`
	// Reason is why a place is gone; empty if none is.
	Reason room.Reason `json:"reason"`
	// RetryAfter is when trying again may help; 0 if the server did not say.
	RetryAfter time.Duration `json:"-"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("the server answered %d %s: %s", e.Status, e.Title, e.Detail)
}

// IsStatus tells whether an error is a refusal with that status, such as
// http.StatusNotFound.
func IsStatus(err error, status int) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == status
}

// refusal reads the problem of a response.
func refusal(response *http.Response) *Error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	e := &Error{}
	if json.Unmarshal(text, e) != nil || e.Detail == "" {
		e = &Error{Detail: fmt.Sprintf("%.200s", text)}
	}
	e.Status, e.Title = response.StatusCode, http.StatusText(response.StatusCode)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// connectionError: the request may or may not have reached the server.
type connectionError struct{ err error }

func (e *connectionError) Error() string { return e.err.Error() }
func (e *connectionError) Unwrap() error { return e.err }

// passing tells whether trying again may help, and what the server asks for.
func passing(err error) (after time.Duration, ok bool) {
	var refused *Error
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusRequestTimeout:
			return refused.RetryAfter, true
		}
		return 0, false
	}
	var connection *connectionError
	return 0, errors.As(err, &connection)
}
