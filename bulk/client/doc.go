// Package client calls bulk's HTTP API from Go: it creates actions, uploads their jobs,
// watches them, changes settings, and runs jobs.
//
// # Nouns
//
//   - A [Client] is bound to one server. Its methods take and return the JSON
//     objects of package wire.
//   - A [Source] yields the payloads of an upload; the parsers of package
//     upload are sources.
//   - A [Worker] leases jobs, and runs them with the handlers of a bulk.Mux.
//   - An [Error] is the server's answer when it refuses a request.
//
// # Guarantees
//
//   - A request that is safe to repeat is retried, a bounded number of times, when the
//     connection fails or the server is unavailable. The backoff doubles, has jitter and a
//     cap, and is at least the server's Retry-After.
//   - An upload continues where the server stands: no job that the server has is sent again,
//     and no job is lost or duplicated by a restart of either side.
//   - Memory is bounded: one chunk of an upload, one event of a watch.
package client
