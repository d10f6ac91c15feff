package api

import (
	"errors"
	"net/http"
	"slices"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// The codes of problems: what a caller may branch on.
const (
	// CodeNotFound: the topic, the record, the group, the node or the path does not exist.
	CodeNotFound = problem.NotFound
	// CodeInvalid: the request is not valid.
	CodeInvalid = problem.Invalid
	// CodeConflict: the state does not allow the change; the detail says what to do.
	CodeConflict = problem.Conflict
	// CodeQuota: the owner of the topic may have no more. A retry helps only after some were deleted, or with a higher quota.
	CodeQuota = problem.Quota
	// CodeCrossOrigin: a page of another origin sent the request.
	CodeCrossOrigin = problem.CrossOrigin
	// CodeUnavailable: the broker cannot do it now; try again.
	CodeUnavailable = problem.Unavailable
	// CodeInternal: the server failed; its log has the reason.
	CodeInternal = problem.Internal
)

// Problem is an error as RFC 9457 defines it, with a code.
type Problem = problem.Problem

// refuse returns the problem of an error of the broker, or nil.
func refuse(err error) *edge.Error {
	switch {
	case isAny(err, topic.ErrNoTopic, topic.ErrNotFound, topic.ErrNoNode, group.ErrNoGroup):
		return edge.Refuse(http.StatusNotFound, CodeNotFound, err.Error())
	case isAny(err, topic.ErrInvalidReplicas, topic.ErrInvalidPartitions, topic.ErrView):
		return edge.Refuse(http.StatusUnprocessableEntity, CodeInvalid, err.Error())
	case errors.Is(err, topic.ErrQuota):
		return edge.Refuse(http.StatusTooManyRequests, CodeQuota, err.Error())
	case isAny(err, topic.ErrNodeInUse, topic.ErrTooManyPartitions):
		return edge.Refuse(http.StatusConflict, CodeConflict, err.Error())
	case isAny(err, topic.ErrClosed, topic.ErrRetry, topic.ErrNoAnswer, topic.ErrUncertain, topic.ErrNotLeader):
		return edge.Refuse(http.StatusServiceUnavailable, CodeUnavailable, "the broker cannot do it now; try again: "+err.Error())
	}
	return nil
}

// isAny reports whether an error is one of several.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
