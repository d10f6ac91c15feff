// Command room-pass is a service that checks passes of a waiting room by itself, with the keys that
// the room publishes; it never asks the room about a pass. It imports nothing of Sluice.
//
//	go run ./examples/room-pass --keys http://127.0.0.1:8080/.well-known/jwks.json --room shop
//
// It listens at 127.0.0.1:3001 and greets every client that shows a pass in the header Sluice-Pass,
// as a gate sends it. The test of this package checks passes that a room has signed.
package main
