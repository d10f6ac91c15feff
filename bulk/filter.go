package bulk

import (
	"encoding/json"
	"fmt"
)

// ActionFilter selects actions.
type ActionFilter struct {
	// Tenant, Callee and Status select the actions that match; empty selects all. Callee is a type,
	// or the name of a target.
	Tenant, Callee string
	Status         Status
	// Streams selects the streams of jobs that were enqueued one at a time.
	Streams bool
	// Unfinished selects the actions that still need the watcher. While a part of the store does
	// not answer, its actions are left out; with a Limit the call fails instead.
	Unfinished bool
	// Number selects the action with that number, as in a LeaseID.
	Number uint64
	// After is the id of the last action of the previous page; empty for the first page.
	After string
	// Limit is the maximum of actions to return, and Look that of actions to look at; 0 is no limit.
	Limit, Look int
}

// LookError is the error of a list that has looked at as many actions as its filter allows. After is the last of them.
type LookError struct{ After string }

func (e *LookError) Error() string {
	return fmt.Sprintf("no more actions are looked at: continue after %q", e.After)
}

// Matches reports whether an action has the filter's tenant, callee and status, and is a stream if only those are selected.
func (f *ActionFilter) Matches(a *Action) bool {
	return (f.Tenant == "" || a.Tenant == f.Tenant) && (f.Callee == "" || a.Type == f.Callee || a.TargetName() == f.Callee) &&
		(f.Status == "" || a.Status == f.Status) && (a.Stream || !f.Streams)
}

// Marks returns what the JSON of the Spec of every action that matches contains, however the rest of it is. To look for
// them is much faster than to decode the JSON.
func (f *ActionFilter) Marks() (marks [][]byte) {
	if f.Streams {
		marks = append(marks, []byte(`"stream":true`))
	}
	for _, text := range []string{f.Tenant, f.Callee} {
		if text == "" {
			continue
		}
		if mark, err := json.Marshal(text); err == nil { // always
			marks = append(marks, mark)
		}
	}
	return marks
}
