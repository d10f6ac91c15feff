// Package client calls room's HTTP API from Go: it makes and changes rooms, and
// enters them, asks for places and leaves.
//
// # Nouns
//
//   - A [Client] is bound to one server.
//   - A [Room] is a room as the API shows it; its settings are those of package
//     room.
//   - A [Place] is what a visitor is told.
//   - An [Error] is what the server answered when it refused a request.
//
// # Guarantees
//
//   - A request that may safely be made twice is made again, a bounded number
//     of times, when the connection fails or the server says that it is
//     unavailable: with a backoff that doubles, has jitter and a cap, and is at
//     least the server's Retry-After. To enter without a key is not: it could take
//     two places.
//   - Memory is bounded: an answer has at most 16 MiB.
package client
