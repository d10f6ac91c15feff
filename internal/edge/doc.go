// Package edge is the HTTP edge that all parts share: routes, bodies, checks of
// origins, problems, and the OpenAPI document.
//
// # Nouns
//
//   - An [API] serves the operations of all parts, and the document of them.
//   - A [Part] registers operations: [Register] for those that the framework
//     decodes and validates, [Handle] for those that read and write their own
//     bytes. Both are described by the types of their input and output.
//   - An [Exchange] is a request with its answer, and the buffers of both.
//   - An [Error] is a problem (RFC 9457) as a Go error.
//   - A [Stream] writes a long answer in parts, as they come.
//
// # How a request flows
//
//	request ─▶ route.go (which operation; 404, 405) ─▶ origin.go (CORS, pages of others)
//	        ─▶ body.go (bytes) ─▶ the part's handler ─▶ JSON, or error.go (problem)
//
// # Guarantees
//
//   - Every answer that is not a success is a problem in JSON, with a code that
//     programs can rely on and a text that says what would be right.
//   - The document is made from the declarations that requests are checked by. It
//     is served at each of [DocumentPaths].
//   - A page of another origin changes nothing, except by operations whose
//     [Audience] allows it.
//   - A body has a bound in bytes. The server that calls the API bounds its time.
package edge
