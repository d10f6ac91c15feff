// Package gate is what stands in front of a shop: it lets through who has a pass of
// a room, and shows the waiting page to everybody else. It is middleware of
// net/http, and a reverse proxy.
//
// # Nouns
//
//   - A [Gate] is the gate of one room; [Rooms] is what it needs of the engine.
//   - A [Page] is what a template is given; its [Kind] is what it is about.
//   - A [Challenge] is what a visitor has to pass before it may join; [Siteverify] asks
//     Turnstile, hCaptcha and reCAPTCHA.
//
// # How data flows
//
//	request ─▶ a path of the gate's own? ─▶ own.go
//	        ─▶ does it need a pass? (the room's routes and bypass) ─ no ─▶ the shop
//	        ─▶ pass and ticket of its cookies (visit.go) ─ inside ─▶ the shop
//	        ─▶ joins, or has a place ─▶ the waiting page, or JSON
//
// # Who joins
//
// A request without a place takes one if a person opens a page, or a program asks
// for JSON. One for a part of a page (an image, a script, a WebSocket) gets 503
// and takes none. A page that is asked for with another method than GET is not
// sent on to the shop; the page says so. One that another site has sent takes none
// either: browsers send no cookies with it, and a new place would replace the visitor's
// own. It is sent on with GET.
//
// Who comes back after the visit has ended, or after having been away, joins anew and
// is told why. A program is answered 410, and joins again by POST to
// /.sluice/{room}/join: a page that polls in a forgotten tab would
// otherwise take places for ever.
//
// # Answers
//
//   - In line: 200 with the page, 202 with the JSON of the API.
//   - The line is full, it is too early, the store does not answer: 503; too many
//     from one address: 429; the room has ended: 403; the place was withdrawn: 410.
//
// All have Cache-Control: no-store, and Retry-After where asking again helps.
// Errors in JSON are problems as RFC 9457 has them.
//
// # What the shop sees
//
// The request with the header Sluice-Pass, a JWT that it may check with the keys at
// /.well-known/jwks.json; a client cannot set that header. The shop ends a visit with the
// response header Sluice-Release: pass (not in an answer that switches protocols), and
// pages may include /.sluice/{room}/release.js: see release.js for what it does.
//
// # Guarantees
//
//   - A request that needs a pass reaches the shop only if the engine has said at
//     that moment that its visitor is inside; or if the store does not answer and the
//     room's on_store_failure is open.
//   - Cookies are HttpOnly and SameSite=Lax, and Secure where the visitor uses TLS. They
//     are set on pages and JSON only. An answer that sets one has Cache-Control: no-store,
//     whatever the shop says of it, so that no cache hands out somebody's place.
//   - The shop sees PassHeader as the gate has set it, and no header that it may take for
//     that one.
//   - No connection is upgraded to another HTTP, whose requests the gate would not see.
//   - A connection that was upgraded, and an answer that has begun, last as long as the
//     shop lets them, also beyond the visit.
//
// Bounds: each question to the engine takes at most [AskTime]; while the store hangs, one
// in a second is asked, and all others are answered as if it were away. Each form has at most
// [MaxForm] bytes and [FormTime], each page at most 1 MiB. A visitor whose browser refuses cookies has
// no place that could be kept: the page says so.
package gate
