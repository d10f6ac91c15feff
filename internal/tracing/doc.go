// Package tracing makes the spans of HTTP requests, served and sent, by the semantic
// conventions of OpenTelemetry for HTTP (version 1.43.0), and carries the context of
// a trace in their headers, as W3C Trace Context defines it.
//
// # Nouns
//
//   - [Served] is the span of an incoming request, of kind server.
//   - [Sent] is the span of an outgoing request, of kind client.
//
// # Guarantees
//
//   - Without a trace nothing happens: the zero Served and Sent are usable.
//   - No span has a header, a query, a password, or the path of an outgoing request:
//     they may hold secrets.
package tracing
