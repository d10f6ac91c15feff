// Package proxied returns the address of the client that made a request, also when
// the request came through proxies, and the token that the client shows.
//
// # Guarantees
//
//   - Only the addresses that trusted proxies appended are believed; what a client
//     writes into headers is not.
//   - At most [MaxHops] addresses of X-Forwarded-For are read.
package proxied
