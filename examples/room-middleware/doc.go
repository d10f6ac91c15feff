// Command room-middleware is a shop with a waiting room inside: no proxy and no other server. At
// most one visitor is at the checkout; the other pages are open to all. Paying ends the visit, and
// the next visitor in the queue is let in.
//
//	go run ./examples/room-middleware
//
// Then open http://127.0.0.1:8000/checkout/ in two browsers. The data is in a temporary directory.
// The test of this package simulates two visitors.
package main
