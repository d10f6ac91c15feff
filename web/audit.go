package web

import (
	"net"
	"net/http"
	"strconv"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
)

// record puts an act in the audit trail.
func (d *Dashboard) record(r *request, right access.Right, key, name string, err error) {
	e := audit.Entry{Edge: audit.HTTP, Operation: "dashboard " + key, Resources: []string{name}, Outcome: audit.Allowed}
	e.Address, _, _ = net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		status := statusOf(err)
		e.Outcome, e.Code = audit.Failed, strconv.Itoa(status)
		if status == http.StatusForbidden {
			e.Outcome = audit.Refused
		}
	}
	d.options.Audit.Record(right, e.By(access.From(r.Context())))
}
