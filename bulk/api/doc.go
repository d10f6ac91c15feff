// Package api is the HTTP edge of bulk: it translates requests into calls of the
// engine, and answers into JSON. It decides nothing about jobs.
//
// # Nouns
//
//   - [Engine] is what the edge needs of bulk's engine.
//   - [Register] adds the operations to the API that all parts share.
//   - An upload is a chunk of jobs, NDJSON or CSV, read by package upload.
//   - A problem is an error as RFC 9457 defines it; package wire has its codes.
//   - A watch is a stream of server-sent events: an action, on every change.
//
// # How data flows
//
//	request ─▶ internal/edge (route, origin, body, validation) ─▶ the operation's file
//	        ─▶ Engine ─▶ types.go (JSON objects) or errors.go (problems) ─▶ response
//
// # Guarantees
//
//   - Every answer that is not a success is a problem in JSON, with a code that
//     programs can rely on and a text that says what would be right.
//   - The OpenAPI document describes what is checked: the document and the checks
//     come from the same declarations. An unknown field is refused.
//   - A chunk with a bad line changes nothing. A chunk that was answered with
//     200 is durable.
//   - The memory of every request is bounded: limits.go has the bounds, and
//     bulk.MaxPageBytes is that of what one answer reads of the store. Connections
//     are bounded by the server.
package api
