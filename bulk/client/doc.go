// Package client calls bulk's HTTP API from Go: it creates actions, uploads
// their jobs, follows them, and changes settings.
//
// # Nouns
//
//   - A [Client] is bound to one server. Its methods take and return the JSON
//     objects of package wire.
//   - A [Source] yields the payloads of an upload; the parsers of package
//     upload are sources.
//   - An [Error] is what the server answered when it refused a request.
//
// # Guarantees
//
//   - A request that may safely be made twice is made again, a bounded number
//     of times, when the connection fails or the server says that it is
//     unavailable: with a backoff that doubles, has jitter and a cap, and is at
//     least the server's Retry-After.
//   - An upload goes on where the server stands: nothing is sent twice that the
//     server has, no job is lost or doubled by a restart of either side.
//   - Memory is bounded: one chunk of an upload, one event of a watch.
package client
