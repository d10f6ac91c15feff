// Package tracing makes the spans of HTTP requests, those that are served and
// those that are sent, as OpenTelemetry's semantic conventions for HTTP have them
// (version 1.43.0), and carries the context of a trace in their headers, as W3C
// Trace Context has it.
//
// # Nouns
//
//   - A [Served] request is one that came in: a span of kind server.
//   - A [Sent] request is one that goes out: a span of kind client.
//
// # Guarantees
//
//   - Without a trace nothing is done: the zero Served and Sent are usable.
//   - No span has a header, a query, a password, or the path of a request that
//     was sent: they may hold secrets.
package tracing
