package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// problem is an error encoded as in RFC 9457.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	// Conflict and Move hold the details of errors that have some.
	Conflict *ImportConflictError `json:"conflict,omitempty"`
	Move     *catalog.Migration   `json:"move,omitempty"`
}

const problemType = "application/problem+json"

// Codes of problems that are not errors of package topic.
const (
	codeInvalid      = "invalid"
	codeUnauthorized = "unauthorized"
	codeNames        = "names_taken"
	codeMoved        = "moved"
	codeUnavailable  = "unavailable"
	codeInternal     = "internal"
)

// sentinels are the errors that callers branch on, with their codes.
var sentinels = []struct {
	code   string
	status int
	err    error
}{
	{"imported", http.StatusConflict, ErrImported},
	{"fenced", http.StatusConflict, topic.ErrFenced},
	{"corrupt", http.StatusUnprocessableEntity, topic.ErrCorrupt},
	{"topic_exists", http.StatusConflict, topic.ErrTopicExists},
	{"invalid_replicas", http.StatusUnprocessableEntity, topic.ErrInvalidReplicas},
	{"no_log", http.StatusNotFound, topic.ErrNoLog},
	{"full", http.StatusInsufficientStorage, topic.ErrFull},
	{"uncertain", http.StatusServiceUnavailable, topic.ErrUncertain},
	{"closed", http.StatusServiceUnavailable, topic.ErrClosed},
	{"conflict", http.StatusConflict, topic.ErrConflict},
	{"not_found", http.StatusNotFound, topic.ErrNotFound},
	{codeInvalid, http.StatusBadRequest, errFrame},
	{codeUnavailable, http.StatusServiceUnavailable, context.DeadlineExceeded},
	{codeUnavailable, http.StatusServiceUnavailable, context.Canceled},
	{codeUnavailable, http.StatusServiceUnavailable, ErrUnavailable},
}

// ErrUnavailable reports that a server does not answer, or cannot serve the request now:
// it may be repeated.
var ErrUnavailable = errors.New("the server cannot do it now")

// problemOf returns the problem that describes an error.
func problemOf(err error) problem {
	p := problem{Status: http.StatusInternalServerError, Code: codeInternal, Detail: err.Error()}
	switch {
	case errors.As(err, &p.Conflict):
		p.Status, p.Code = http.StatusConflict, codeNames
		return p
	case p.setMove(err):
		p.Status, p.Code = http.StatusConflict, codeMoved
		return p
	}
	for _, known := range sentinels {
		if errors.Is(err, known.err) {
			p.Status, p.Code = known.status, known.code
			break
		}
	}
	return p
}

func (p *problem) setMove(err error) bool {
	moved, ok := errors.AsType[*catalog.MigratedError](err)
	if ok {
		p.Move = &moved.Migration
	}
	return ok
}

func (p problem) write(w http.ResponseWriter) {
	p.Title = http.StatusText(p.Status)
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client has gone
}

// told is an error that a server has reported: its text, and the errors it wraps.
type told struct {
	text string
	is   error
}

func (e *told) Error() string { return e.text }
func (e *told) Unwrap() error { return e.is }

// err returns the error that a problem describes.
func (p problem) err() error {
	switch {
	case p.Conflict != nil:
		return p.Conflict
	case p.Move != nil:
		return &catalog.MigratedError{Migration: *p.Move}
	case p.Code == codeUnavailable:
		return &told{p.Detail, ErrUnavailable}
	}
	for _, known := range sentinels {
		if known.code == p.Code {
			return &told{p.Detail, known.err}
		}
	}
	return errors.New(p.Detail)
}
