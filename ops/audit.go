package ops

import (
	"net"
	"net/http"
	"strconv"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
)

// act is a request as the audit trail has it, once it is answered.
type act struct {
	trail           *audit.Trail // nil: the request is for the public, or there is no trail
	address         string
	operation, path string
	right           access.Right
	sender          *access.Principal
	stranger        bool     // the request is refused: it shows no valid token
	names           []string // what the body names
}

// follows makes the trail record a request when it is answered with a.
func (g *guard) follows(a *reply, r *http.Request, operation string, right access.Right) *http.Request {
	if a == nil || g.trail == nil || right == access.Open {
		return r
	}
	a.act = act{trail: g.trail, address: r.RemoteAddr, operation: operation, path: r.URL.Path, right: right}
	if !right.Changes() {
		return r
	}
	return r.WithContext(audit.With(r.Context(), &a.act.names))
}

// record records the request, with the status of its answer.
func (a *reply) record() {
	status := a.status
	if !a.handled {
		status = http.StatusInternalServerError // the handler has panicked, perhaps after an answer had begun
	}
	a.act.answered(status)
}

// answered records a request with the status of its answer; 0 is that of a handler that has sent none.
func (a *act) answered(status int) {
	if a.trail == nil || status < http.StatusBadRequest && !a.right.Changes() {
		return
	}
	e := audit.Entry{Edge: audit.HTTP, Operation: a.operation, Resources: append([]string{a.path}, a.names...), Outcome: audit.Allowed}
	e.Address, _, _ = net.SplitHostPort(a.address)
	switch {
	case a.stranger:
		e.Outcome = audit.Unauthenticated
	case status == http.StatusForbidden:
		e.Outcome = audit.Refused
	case status >= http.StatusBadRequest:
		e.Outcome = audit.Failed
	}
	if status >= http.StatusBadRequest {
		e.Code = strconv.Itoa(status)
	}
	a.trail.Record(a.right, e.By(a.sender))
}
