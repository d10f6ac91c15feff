// Package api is the HTTP edge of rooms: it translates requests into calls of the
// engine, and answers into JSON. It decides nothing about visitors.
//
// # Nouns
//
//   - [Engine] is what the edge needs of the room's engine.
//   - [Register] adds the operations to the API that all parts share.
//   - A [Problem] is an error as RFC 9457 defines it, with a code.
//   - A view is an object of the API; schema.go has those that only the OpenAPI
//     document uses.
//
// # How data flows
//
//	request ─▶ internal/edge (route, origin, body) ─▶ visitors.go, poll.go or rooms.go
//	        ─▶ Engine ─▶ JSON, or problem.go ─▶ response
//	GET …/me/watch ─▶ watch.Hub, which owns the stream from then on
//
// # Who may call what
//
// The paths below …/visitors, …/lottery and the key set are for visitors' browsers: a
// public listener serves them, and with [WithOrigins] pages of other origins may call
// them. All others are for operators, and nothing here authenticates the caller. A page
// of another origin that an operator opens can change nothing through them. A place
// belongs to whoever has its ticket: at a public listener, from pages and through a
// trusted proxy nobody can name a visitor's key without a token that the shop has
// signed, and nobody can anywhere if the engine has keys for tokens.
//
// # Guarantees
//
//   - Every answer that is not a success is a problem in JSON, with a code that
//     programs can rely on and a text that says what would be right.
//   - Answers are as the OpenAPI document says; tests compare them.
//   - A body is read as a whole before the engine is called: at most [MaxBody] bytes
//     ([MaxSettings] for settings), within 10 s.
//   - At most [MaxWaiters] requests wait for news; others are answered at once.
package api
