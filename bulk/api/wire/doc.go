// Package wire has the JSON objects of bulk's HTTP API: what the server in
// package api writes and what the client in package client reads.
//
// Times are RFC 3339 in UTC, durations are whole milliseconds in fields that
// end in _ms, and a field that is documented as null is present and null. The
// struct tags beside json describe the OpenAPI document and are checked for
// every request: doc, enum, minimum, maximum, default and the like.
package wire
