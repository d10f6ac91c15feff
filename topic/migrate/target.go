package migrate

import (
	"log/slog"
	"net/http"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// logRequest asks for the end of a log.
type logRequest struct {
	Run     int64  `json:"run"`
	First   uint64 `json:"first"`
	Restart bool   `json:"restart,omitempty"`
}

// appended is the answer to entries.
type appended struct {
	Last uint64 `json:"last"`
}

// commitRequest asks for the decision.
type commitRequest struct {
	Run       int64     `json:"run"`
	Inventory Inventory `json:"inventory"`
}

// opened is the answer to the last step.
type opened struct {
	Nodes []catalog.Address `json:"nodes"`
}

// NewTargetHandler serves a target below Prefix to clients that have the secret.
func NewTargetHandler(target Target, secret string, log *slog.Logger) http.Handler {
	h := newHandler(secret, log)
	h.handle("POST "+Prefix+"imports", func(r *http.Request) (any, error) {
		var request ImportRequest
		if err := readJSON(r, &request); err != nil {
			return nil, err
		}
		return target.Begin(r.Context(), request)
	})
	h.serveCopies(target)
	h.serveSteps(target)
	return h
}

// oneImport is the prefix of the paths of one import.
const oneImport = Prefix + "imports/{source}"

// serveCopies serves the steps that are repeated.
func (h *handler) serveCopies(target Target) {
	h.handle("POST "+oneImport+"/logs/{log}", func(r *http.Request) (any, error) {
		var request logRequest
		if err := readJSON(r, &request); err != nil {
			return nil, err
		}
		return target.Log(r.Context(), r.PathValue("source"), request.Run, r.PathValue("log"), request.First, request.Restart)
	})
	h.handle("PUT "+oneImport+"/logs/{log}", func(r *http.Request) (any, error) {
		run, err := number(r, "run")
		if err != nil {
			return nil, err
		}
		entries, err := readEntries(r.Body)
		if err != nil {
			return nil, err
		}
		last, err := target.Append(r.Context(), r.PathValue("source"), run, r.PathValue("log"), entries)
		return appended{last}, err
	})
	h.handle("PUT "+oneImport+"/items", func(r *http.Request) (any, error) {
		run, items, err := runAndItems(r)
		if err != nil {
			return nil, err
		}
		return nil, target.Put(r.Context(), r.PathValue("source"), run, items)
	})
}

// serveSteps serves the steps that end an import.
func (h *handler) serveSteps(target Target) {
	h.handle("POST "+oneImport+"/commit", func(r *http.Request) (any, error) {
		var request commitRequest
		if err := readJSON(r, &request); err != nil {
			return nil, err
		}
		if request.Inventory.Cluster != r.PathValue("source") {
			return nil, invalid("the inventory is of %q", request.Inventory.Cluster)
		}
		return nil, target.Commit(r.Context(), request.Run, request.Inventory)
	})
	h.handle("POST "+oneImport+"/open", func(r *http.Request) (any, error) {
		run, items, err := runAndItems(r)
		if err != nil {
			return nil, err
		}
		nodes, err := target.Open(r.Context(), r.PathValue("source"), run, items)
		return opened{nodes}, err
	})
	h.handle("POST "+oneImport+"/abort", func(r *http.Request) (any, error) {
		return target.Abort(r.Context(), r.PathValue("source"))
	})
	h.handle("POST "+oneImport+"/clean", func(r *http.Request) (any, error) {
		var by attempt
		if err := readJSON(r, &by); err != nil {
			return nil, err
		}
		return nil, target.Clean(r.Context(), r.PathValue("source"), by.Run)
	})
}

func runAndItems(r *http.Request) (int64, []topic.Item, error) {
	run, err := number(r, "run")
	if err != nil {
		return 0, nil, err
	}
	items, err := readItems(r.Body)
	return run, items, err
}
