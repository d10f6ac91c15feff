package edge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/edge/problem"
)

const problemType = "application/problem+json"

// Error is a problem as an error.
type Error struct {
	problem.Problem
	header http.Header
	fault  error // what the log says; nil if the server is not to blame
}

// Refuse returns an error with a status, a code and a detail.
func Refuse(status int, code, detail string) *Error {
	return &Error{
		Problem: problem.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail},
		header:  http.Header{"Cache-Control": noStore},
	}
}

// Invalid refuses one field with status 422.
func Invalid(field, why string) *Error {
	return InvalidField(http.StatusUnprocessableEntity, field, why)
}

// InvalidField refuses one field with a status.
func InvalidField(status int, field, why string) *Error {
	e := Refuse(status, problem.Invalid, field+": "+why)
	e.Errors = []problem.FieldError{{Field: field, Detail: why}}
	return e
}

// RetryAfter says when a retry may succeed, in whole seconds rounded up.
func (e *Error) RetryAfter(after time.Duration) *Error {
	if after > 0 {
		return e.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	return e
}

// Set sets a header of the answer.
func (e *Error) Set(name, value string) *Error {
	e.header.Set(name, value)
	return e
}

// Fault marks the server as the cause: err is logged.
func (e *Error) Fault(err error) *Error {
	e.fault = err
	return e
}

func (e *Error) Error() string { return e.Detail }

// GetStatus returns the status code, for the framework.
func (e *Error) GetStatus() int { return e.Status }

// GetHeaders returns the headers of the answer, for the framework.
func (e *Error) GetHeaders() http.Header { return e.header }

// ContentType returns the content type of a problem, for the framework.
func (e *Error) ContentType(string) string { return problemType }

// Write answers with the problem.
func (e *Error) Write(w http.ResponseWriter) {
	header := w.Header()
	maps.Copy(header, e.header)
	header.Set("Content-Type", problemType)
	text, err := json.Marshal(e.Problem)
	if err != nil {
		panic("edge: a problem cannot be written: " + err.Error())
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(text) // The client is gone if it fails.
}

// Internal is the problem of an error that nobody expected: it is logged, not shown.
func Internal(err error) *Error {
	return Refuse(http.StatusInternalServerError, problem.Internal, "an internal error, which is in the server's log").Fault(err)
}

const retrySoon = 2 * time.Second

// refusal returns the problem of an error, and logs it if the server is to blame.
func (p *Part) refusal(ctx context.Context, operation string, err error) *Error {
	var refused *Error
	if !errors.As(err, &refused) {
		if refused = p.options.Refuse(err); refused == nil {
			refused = Internal(err)
		}
	}
	if refused.fault == nil {
		return refused
	}
	if ctx.Err() != nil && refused.Code == problem.Internal {
		return Refuse(http.StatusServiceUnavailable, problem.Unavailable, "the request ended before its answer").RetryAfter(retrySoon)
	}
	if ctx.Err() == nil {
		p.faults.log(ctx, operation, refused)
	}
	return refused
}

// Failed logs an error that came too late for an answer.
func (p *Part) Failed(ctx context.Context, operation string, err error) {
	_ = p.refusal(ctx, operation, err)
}

// faultLog logs faults, each kind at most once a second: a store that is down fails
// every request.
type faultLog struct {
	part   string
	logger *slog.Logger
	mu     sync.Mutex
	logged map[string]time.Time // by detail
}

// maxKinds bounds the kinds of faults that are remembered.
const maxKinds = 64

func (l *faultLog) log(ctx context.Context, operation string, e *Error) {
	now := time.Now()
	l.mu.Lock()
	last, known := l.logged[e.Detail]
	recent := known && now.Sub(last) < time.Second
	if !recent {
		if l.logged == nil || len(l.logged) >= maxKinds {
			l.logged = map[string]time.Time{}
		}
		l.logged[e.Detail] = now
	}
	l.mu.Unlock()
	if !recent {
		l.logger.ErrorContext(ctx, l.part+" request failed", "operation", operation, "status", e.Status, "error", e.fault)
	}
}
