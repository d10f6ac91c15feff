package migrate

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
)

// compactedQuery is what a migrator says that knows compacted topics.
const compactedQuery = "compacted"

// NewSourceHandler serves a source below Prefix to clients that have the secret.
func NewSourceHandler(source Source, secret string, log *slog.Logger) http.Handler {
	h := newHandler(secret, log)
	h.handle("GET "+Prefix+"source", func(r *http.Request) (any, error) {
		inventory, err := source.Inventory(r.Context())
		if err == nil && !r.URL.Query().Has(compactedQuery) {
			err = inventory.mayCompact(false) // a migrator of an earlier version does not ask the cluster
		}
		return inventory, err
	})
	h.handle("GET "+Prefix+"source/logs/{log}", func(r *http.Request) (any, error) {
		from, err := number(r, "from")
		if err != nil {
			return nil, err
		}
		size, err := pageSize(r)
		if err != nil {
			return nil, err
		}
		entries, err := source.Entries(r.Context(), r.PathValue("log"), uint64(from), size)
		return frames{entries: entries}, err
	})
	h.handle("GET "+Prefix+"source/logs/{log}/{sequence}", func(r *http.Request) (any, error) {
		sequence, err := strconv.ParseUint(r.PathValue("sequence"), 10, 64)
		if err != nil {
			return nil, invalid("sequence %q: want a number", r.PathValue("sequence"))
		}
		return source.EntryID(r.Context(), r.PathValue("log"), sequence)
	})
	h.handle("GET "+Prefix+"source/items", func(r *http.Request) (any, error) {
		size, err := pageSize(r)
		if err != nil {
			return nil, err
		}
		items, err := source.Items(r.Context(), r.URL.Query().Get("after"), size)
		return frames{items: items}, err
	})
	move := func(name string, do func(context.Context, attempt) error) {
		h.handle("POST "+Prefix+"source/"+name, func(r *http.Request) (any, error) {
			var by attempt
			if err := readJSON(r, &by); err != nil {
				return nil, err
			}
			return nil, do(r.Context(), by)
		})
	}
	move("fence", func(ctx context.Context, by attempt) error { return source.Fence(ctx, by.Cluster, by.Run) })
	move("unfence", func(ctx context.Context, by attempt) error { return source.Unfence(ctx, by.Cluster, by.Run) })
	move("moved", func(ctx context.Context, by attempt) error { return source.Moved(ctx, by.Cluster, by.Run, by.Nodes) })
	return h
}

func pageSize(r *http.Request) (int, error) {
	size, err := number(r, "max_bytes")
	return int(min(size, maxPage)), err
}
