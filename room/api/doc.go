// Package api is the HTTP edge of rooms: it turns requests into calls of the
// engine, and answers into JSON. It decides nothing about visitors.
//
// # Nouns
//
//   - [Engine] is what the edge needs of the room's engine.
//   - An operation is a method of a path; routes.go has all of them in a table.
//   - An exchange is one request with its answer, and the buffers for both.
//   - A [Problem] is an error as RFC 9457 has it, with a code.
//
// # How data flows
//
//	request ─▶ routes.go (which operation; CORS) ─▶ body.go (all of the body, bounded)
//	        ─▶ visitors.go, poll.go or rooms.go ─▶ Engine ─▶ JSON, or problem.go ─▶ response
//	GET …/me/watch ─▶ watch.Hub, which has the stream from then on
//
// # Who may call what
//
// The paths below …/visitors, …/lottery and the key set are for visitors' browsers;
// with [WithOrigins] pages of other origins may call them. All others are for
// operators, and nothing here asks who calls: what faces the internet must pass
// on the visitors' paths only. A page of another origin that an operator opens can
// change nothing by them.
//
// # Guarantees
//
//   - Every answer that is not a success is a problem in JSON, with a code that
//     programs can rely on and a text that says what would be right.
//   - What is answered is as described at [DocumentPath]; tests compare them.
//   - Bodies are read as a whole before anything is done, at most [MaxBody] bytes of
//     them ([MaxSettings] for settings), within 10 s.
//   - At most [MaxWaiters] requests wait for news; others are answered at once.
package api
