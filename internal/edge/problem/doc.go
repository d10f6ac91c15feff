// Package problem has the one error object of the HTTP API, which the server writes
// and clients read.
//
// # Nouns
//
//   - A [Problem] is an error as RFC 9457 defines it, with a code that programs can
//     rely on.
//
// # Guarantees
//
//   - It imports neither HTTP nor a framework, so that clients stay small.
package problem
