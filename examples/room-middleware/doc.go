// Command room-middleware is a shop with a waiting room inside: no proxy, no server
// beside it. At most one visitor is at the checkout; the pages before it are open to
// all. Paying ends the visit, and the next in line is let in.
//
//	go run ./examples/room-middleware
//
// and then open http://127.0.0.1:8000/checkout/ in two browsers. Its data is in a
// temporary directory. The test of this package plays two visitors.
package main
