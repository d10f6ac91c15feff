package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

const problemType = "application/problem+json"

// problem is a wire.Problem as an error that the library writes.
type problem struct {
	wire.Problem
	headers http.Header
}

func newProblem(status int, code, detail string) *problem {
	return &problem{Problem: wire.Problem{
		Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	}}
}

// invalid refuses one field.
func invalid(status int, field, why string) *problem {
	p := newProblem(status, wire.CodeInvalid, field+": "+why)
	p.Errors = []wire.FieldError{{Field: field, Detail: why}}
	return p
}

// retryAfter says when trying again may help.
func (p *problem) retryAfter(after time.Duration) *problem {
	p.headers = http.Header{"Retry-After": {strconv.Itoa(int(after.Seconds()))}}
	return p
}

func (p *problem) withReceived(received int64) *problem {
	p.Received = &received
	return p
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) GetHeaders() http.Header   { return p.headers }
func (p *problem) ContentType(string) string { return problemType }

// refuse makes a problem of an error of the engine on an action, and logs what
// is the server's fault.
func (s *server) refuse(ctx context.Context, id string, err error) *problem {
	var done *problem
	var spec *bulk.SpecError
	var setting *bulk.SettingError
	var exists *bulk.ExistsError
	var offset *bulk.OffsetError
	var move *bulk.MoveError
	switch {
	case errors.As(err, &done):
		return done
	case errors.As(err, &spec) && spec.Field == "events":
		return invalid(http.StatusBadRequest, spec.Field, spec.Why)
	case errors.As(err, &spec):
		return invalid(http.StatusUnprocessableEntity, spec.Field, spec.Why)
	case errors.As(err, &setting):
		return invalid(http.StatusUnprocessableEntity, setting.Field, setting.Why)
	case errors.As(err, &exists):
		return newProblem(http.StatusConflict, wire.CodeExists, exists.Error())
	case errors.As(err, &offset):
		return newProblem(http.StatusConflict, wire.CodeOffset, offset.Error()).withReceived(offset.Received)
	case errors.As(err, &move):
		return newProblem(http.StatusConflict, wire.CodeStatus, move.Error())
	case errors.Is(err, bulk.ErrNotFound):
		return newProblem(http.StatusNotFound, wire.CodeNotFound, fmt.Sprintf("there is no action %q", id))
	case ctx.Err() != nil:
		return newProblem(http.StatusServiceUnavailable, wire.CodeUnavailable, "the request ended before its answer").retryAfter(time.Second)
	}
	p := s.fault(err)
	level := slog.LevelError
	if errors.Is(err, bulk.ErrUnavailable) {
		level = slog.LevelDebug // the engine tells of it, once and not with each request
	}
	s.logger.Log(ctx, level, "bulk request failed", "status", p.Status, "action", id, "error", err)
	return p
}

// fault makes a problem of an error that the client did not cause.
func (s *server) fault(err error) *problem {
	switch {
	case errors.Is(err, bulk.ErrFull):
		return newProblem(http.StatusInsufficientStorage, wire.CodeFull,
			"the store is full and accepts no more; what it has accepted goes on. Make room on its disk, or wait until finished actions are removed; "+
				"if its events cannot be published, see to what takes them")
	case errors.Is(err, bulk.ErrUnavailable):
		return newProblem(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the store does not answer now: what was asked for may have happened, and asking again is safe").retryAfter(time.Second)
	case errors.Is(err, bulk.ErrBroken):
		return newProblem(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the store is broken until the server is started again; everything it acknowledged is safe").retryAfter(10 * time.Second)
	case errors.Is(err, bulk.ErrClosed):
		return newProblem(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the server is shutting down; try again when it is back").retryAfter(5 * time.Second)
	default:
		return newProblem(http.StatusInternalServerError, wire.CodeInternal, "an internal error, which is in the server's log")
	}
}

// reshape makes problems of the library's own errors: those of requests that do
// not fit the declared fields. It is a huma.Transformer.
func (s *server) reshape(ctx huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	p := newProblem(model.Status, wire.CodeInvalid, model.Detail)
	switch model.Status {
	case http.StatusRequestEntityTooLarge:
		p.Code = wire.CodeTooLarge
		p.Detail = fmt.Sprintf("the body has more than %d bytes", ctx.Operation().MaxBodyBytes-1)
		return p, nil
	case http.StatusRequestTimeout:
		p.Code = wire.CodeTimeout
		p.Detail = fmt.Sprintf("the body did not arrive within %v", bodyTimeout)
		return p, nil
	case http.StatusUnsupportedMediaType:
		p.Code = wire.CodeMediaType
		p.Detail = fmt.Sprintf("content type %.100q: want application/json", ctx.Header("Content-Type"))
		return p, nil
	case http.StatusInternalServerError:
		p.Code = wire.CodeInternal
		s.logger.ErrorContext(ctx.Context(), "bulk request failed", "status", model.Status, "error", model.Detail)
		return p, nil
	}
	for _, detail := range model.Errors {
		p.Errors = append(p.Errors, fieldError(detail))
	}
	p.Detail = cmp.Or(wire.Join(p.Errors), p.Detail)
	return p, nil
}

// notWhole matches what encoding/json says of a number such as 3.0 or 1e3, which
// is an integer to the schema but not to a Go field.
var notWhole = regexp.MustCompile(`^json: cannot unmarshal number (\S+) into Go struct field [^.]+\.(\S+) of type u?int`)

// fieldError names the field and says in our words what is wrong with it.
func fieldError(detail *huma.ErrorDetail) wire.FieldError {
	place, field, _ := strings.Cut(detail.Location, ".")
	if place != "body" && field == "" {
		field = place
	}
	e := wire.FieldError{Field: field, Detail: detail.Message}
	if number := notWhole.FindStringSubmatch(detail.Message); number != nil {
		return wire.FieldError{Field: number[2], Detail: number[1] + ": want a whole number, without a point or an exponent"}
	}
	missing, isMissing := strings.CutPrefix(detail.Message, "expected required property ")
	switch {
	case isMissing:
		name := strings.TrimSuffix(missing, " to be present")
		e.Field = strings.TrimPrefix(field+"."+name, ".")
		e.Detail = "is required"
	case detail.Message == validation.MsgUnexpectedProperty:
		e.Detail = "unknown field"
	case field == "requests_per_second" && detail.Value == "auto":
		e.Detail = `"auto" is for targets only: give a number, 0 for no limit`
	case field == "requests_per_second" && detail.Message == validation.MsgExpectedMatchExactlyOneSchema:
		e.Detail = `want a number from 0 (no limit) to 1,000,000,000, or "auto"`
	}
	return e
}
