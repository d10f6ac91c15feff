// Package client calls room's HTTP API from Go: it makes and changes rooms, and
// enters them, asks for places and leaves.
//
// # Nouns
//
//   - A [Client] is bound to one server.
//   - A [Room] is a room as the API shows it; its settings are those of package
//     room.
//   - A [Place] is the answer to a visitor.
//   - An [Error] is the server's refusal of a request.
//
// # Guarantees
//
//   - An idempotent request is retried, a bounded number of times, when the connection
//     fails or the server is unavailable: with a backoff that doubles, has jitter and a
//     cap, and is at least the server's Retry-After. Enter without a key is not retried:
//     it could take two places.
//   - Memory is bounded: an answer has at most 16 MiB.
package client
