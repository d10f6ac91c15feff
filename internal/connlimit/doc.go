// Package connlimit bounds the connections that clients hold: all of them together, and
// those of one client.
//
// # Nouns
//
//   - [Bounds] say how many connections there may be.
//   - A [Limiter] counts the connections of all its listeners.
//
// # Guarantees
//
//   - A connection beyond a bound is reset at once, and costs nothing else.
//   - The kernel holds little of what a client does not read.
//   - The bound that follows from the limit of file descriptors leaves as many as the
//     stores need.
package connlimit
