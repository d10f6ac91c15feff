// Package gate stands in front of an upstream: it lets visitors with a pass of a room
// through, and shows the waiting page to all others. It is middleware of net/http, and a
// reverse proxy.
//
// # Nouns
//
//   - A [Gate] stands in front of sites; [Rooms] is the part of the engine that it needs.
//   - A [Site] is what it does for some hosts: which requests need which room, and what is
//     behind it. A [SiteRule] is one of its rules.
//   - A [Page] is the data of a template; its [Kind] is its subject. [Words] are its texts in a
//     language, from the files in words or an operator's.
//   - A [Challenge] is a test that a visitor has to pass before it may join: [Siteverify]
//     asks Turnstile, hCaptcha and reCAPTCHA, and [ProofOfWork] makes the browser calculate.
//   - [Metrics] count what gates and the proxies behind them do.
//
// # How data flows
//
//	request ─▶ a path of the gate's own? ─▶ own_paths.go
//	        ─▶ a proxy that asks about a request? ─▶ that request takes the way below (check.go)
//	        ─▶ which site, which room? (site.go) ─ none ─▶ the shop
//	        ─▶ does it need a pass? (the room's routes and bypass) ─ no ─▶ the shop
//	        ─▶ pass and ticket of its cookies (visit.go) ─ inside ─▶ the shop
//	        ─▶ joins, or has a place ─▶ the waiting page, or JSON
//
// # Joining
//
// A request without a place takes one if a person opens a page, or a program asks for
// JSON. A request for a part of a page (an image, a script, a WebSocket) gets 503 and no
// place. A page that is requested with another method than GET is not sent on to the
// upstream; the waiting page says so. A form that another site has sent takes no place:
// browsers send no cookies with it, and a new place would replace the visitor's own. It is
// redirected with GET, or, at a path of [Site].Returns, sent again by a page (returns.go).
//
// A visitor who shows a token of the shop (the header Sluice-Token, or sluice_token in the
// query or a cookie; see [engine.TokenKeys]) has one place over all devices. A token that is
// not valid is ignored.
//
// A visitor who comes back after the visit has ended, or after a long absence, joins again
// and sees why. A program gets 410, and joins again by POST to /.sluice/{room}/join:
// otherwise a page that polls in a forgotten tab would take places forever.
//
// An app of one page joins with sluice.js, by a POST to /.sluice/{room}/enter, which takes the place
// that opening a page would, with the same rules, and refuses other sites. Answers to requests that the
// gate has held have the header Sluice-Wait with the room, so that the script waits and sends
// the request again.
//
// # Answers
//
//   - In line: 200 with the page, 202 with the JSON of the API, without the ticket.
//   - The line is full, it is too early, the store does not answer: 503; too many
//     from one address: 429; the room has ended: 403; the place was withdrawn: 410.
//
// All have Cache-Control: no-store, and Retry-After where a retry helps. Errors in JSON
// are problems as in RFC 9457.
//
// # What the upstream sees
//
// The request with the headers Sluice-Pass, a JWT that it may check with the keys at
// /.well-known/jwks.json, Sluice-Visitor and Sluice-Room; a client cannot set them. The upstream ends a visit with the
// response header Sluice-Release: pass (not in an answer that switches protocols), and
// pages may include /.sluice/{room}/release.js: see release.js for what it does.
//
// # Guarantees
//
//   - A request that needs a pass reaches the upstream only if the engine has confirmed that its
//     visitor is inside, for this request or for that pass at this gate at most
//     [Options].Recheck ago; or if the store does not answer and the room's on_store_failure is
//     open.
//   - Cookies are HttpOnly and SameSite=Lax, and where the visitor uses TLS Secure, with
//     names that begin with __Host-. No script sees a ticket, in an answer neither. Cookies
//     are set on pages and JSON only. An answer that sets one has Cache-Control: no-store,
//     whatever the upstream sets, so that no cache hands out somebody's place.
//   - The upstream sees PassHeader, VisitorHeader and RoomHeader as the gate has set them, and
//     no header that it may take for one of them.
//   - Only trusted proxies get an answer at [CheckPath] and [PagePath]. Headers that contradict
//     each other about the request are refused: one of them may be the client's.
//   - No connection is upgraded to another HTTP, whose requests the gate would not see.
//   - A connection that was upgraded, and an answer that has begun, last as long as the
//     shop lets them, also beyond the visit.
//
// Bounds: each call to the engine takes at most [AskTime]; while the store hangs, one call
// a second is tried, and other requests are answered as if it were unavailable. At most 32,768
// passes are believed without asking, some 1 KiB each, and the addresses of 32,768 visitors are
// remembered for [Site].PassClients. Each form
// has at most [MaxForm] bytes and [FormTime], each page at most 1 MiB. A visitor whose
// browser refuses cookies cannot keep a place: the page says so.
package gate
