package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/topic"
)

// The codes of problems: what a caller may branch on.
const (
	// CodeNotFound: there is no such topic, record or path.
	CodeNotFound = "not_found"
	// CodeInvalid: the request is not what it should be.
	CodeInvalid = "invalid"
	// CodeConflict: it cannot be done as things are; the text says what to do first.
	CodeConflict = "conflict"
	// CodeCrossOrigin: a page of another origin has sent what only operators may.
	CodeCrossOrigin = "cross_origin"
	// CodeUnavailable: the broker cannot do it now; try again.
	CodeUnavailable = "unavailable"
	// CodeInternal: a mistake of the server, which is in its log.
	CodeInternal = "internal"
)

const problemType = "application/problem+json"

// Problem is an error as RFC 9457 has it, with a code.
type Problem struct {
	Title  string `json:"title" doc:"The meaning of the status."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What was wrong, and what would be right."`
	Code   string `json:"code" doc:"The kind of the problem, one word that programs can rely on."`
}

// problemError is a Problem as an error that the library writes.
type problemError struct{ Problem }

func (p *problemError) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *problemError) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problemError) ContentType(string) string { return problemType }

func newProblem(status int, code, detail string) *problemError {
	return &problemError{Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}}
}

// problems describes the answers that are not successes.
func problems(api huma.API) map[string]*huma.Response {
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")
	return map[string]*huma.Response{"default": {
		Description: "What was wrong, and what would be right.",
		Content:     map[string]*huma.MediaType{problemType: {Schema: schema}},
	}}
}

// refuse makes a problem of an error of the broker, and logs what is the server's
// fault.
func (s *server) refuse(ctx context.Context, err error) *problemError {
	switch {
	case isAny(err, errNode, errNoLeader):
		return newProblem(http.StatusServiceUnavailable, CodeUnavailable, err.Error()+"; try again")
	case isAny(err, topic.ErrNoTopic, topic.ErrNotFound, topic.ErrNoNode):
		return newProblem(http.StatusNotFound, CodeNotFound, err.Error())
	case isAny(err, topic.ErrInvalidReplicas, topic.ErrInvalidPartitions, topic.ErrView):
		return newProblem(http.StatusUnprocessableEntity, CodeInvalid, err.Error())
	case isAny(err, topic.ErrNoCluster, topic.ErrNodeInUse):
		return newProblem(http.StatusConflict, CodeConflict, err.Error())
	case isAny(err, topic.ErrClosed, topic.ErrRetry, topic.ErrUncertain, topic.ErrNotLeader), ctx.Err() != nil:
		return newProblem(http.StatusServiceUnavailable, CodeUnavailable, "the broker cannot do it now; try again: "+err.Error())
	}
	s.logger.ErrorContext(ctx, "topic request failed", "error", err)
	return newProblem(http.StatusInternalServerError, CodeInternal, "an internal error, which is in the server's log")
}

// isAny tells whether an error is one of several.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// reshape makes problems of the library's own errors: those of requests that do
// not fit the declared fields. It is a huma.Transformer.
func (s *server) reshape(ctx huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	if model.Status >= http.StatusInternalServerError {
		s.logger.ErrorContext(ctx.Context(), "topic request failed", "status", model.Status, "error", model.Detail)
		return newProblem(model.Status, CodeInternal, "an internal error, which is in the server's log"), nil
	}
	var wrong []string
	for _, detail := range model.Errors {
		_, field, _ := strings.Cut(detail.Location, ".")
		wrong = append(wrong, cmp.Or(field, detail.Location)+": "+detail.Message)
	}
	return newProblem(model.Status, CodeInvalid, cmp.Or(strings.Join(wrong, "; "), model.Detail)), nil
}

// ownPages tells requests that a page of another origin made a browser send.
var ownPages = http.NewCrossOriginProtection()

// fromOwnPages refuses what a page of another origin made a browser send.
func fromOwnPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := ownPages.Check(r); err != nil {
			newProblem(http.StatusForbidden, CodeCrossOrigin, "a page of another origin may not do this: "+err.Error()).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// write writes the problem where the library does not.
func (p *problemError) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // The client has gone if it fails.
}

// notServed answers where no operation is.
func notServed(w http.ResponseWriter, r *http.Request) {
	newProblem(http.StatusNotFound, CodeNotFound, "there is no "+r.Method+" "+r.URL.Path+"; see "+DocumentPath).write(w)
}
