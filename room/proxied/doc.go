// Package proxied tells the address of the client that made a request, also
// when the request came through proxies.
//
// # Guarantees
//
//   - What a client writes into headers is believed only as far as it was
//     appended by proxies that are trusted.
//   - Of X-Forwarded-For at most [MaxHops] addresses are read.
package proxied
