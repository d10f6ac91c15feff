package edge

import "net/http"

// Load has the turns of each part by itself, so that one whose store is slow delays no other.
type Load interface {
	// Part returns the turns of a part.
	Part(name string) Turns
}

// Turns decide when requests begin that bring new work, or read what is there.
type Turns interface {
	// Begin returns nil once the request of an operation may begin, until its handler returns; or the problem that
	// refuses it because others are in progress. The body has at most that many bytes. Begin reads none of them.
	Begin(w http.ResponseWriter, r *http.Request, mostBody int64) *Error
}

// unloaded are the operations, by id, that begin whatever the load is. They go on with work that was accepted, help
// operators to end an overload, or have bounds of their own. All others bring new work, or read.
var unloaded = map[string]bool{
	"lease-jobs": true, "acknowledge-leases": true, "extend-leases": true,
	"ask": true, "leave": true, "renew": true, "watch": true, "keys": true, "report-health": true,
	"seal-action": true, "pause-action": true, "resume-action": true, "cancel-action": true, "change-actions": true, "pause-schedule": true, "remove-schedule": true,
	"set-tenant": true, "set-target": true, "set-type": true, "set-limits": true, "set-quota": true, "put-room": true,
	"pause-room": true, "resume-room": true, "sold-out-room": true, "revoke": true, "revoke-token": true,
	"balance-cluster": true, "prefer-leaders": true, "drain-node": true, "resume-node": true, "remove-node": true,
	"upload-jobs": true, "watch-action": true, "debug-process": true,
}

// begin asks the turns, if there are some, whether a request of the operation may begin.
func (e *endpoint) begin(w http.ResponseWriter, r *http.Request) *Error {
	turns := e.part.turns
	if turns == nil || unloaded[e.id] {
		return nil
	}
	most := e.maxBody
	if e.operation != nil {
		most = e.operation.MaxBodyBytes
	}
	return turns.Begin(w, r, most)
}
