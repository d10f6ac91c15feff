// Package room is a virtual waiting room: it holds people in a fair line in
// front of a service, and lets in as many as the service can bear.
//
// # Nouns
//
//   - A [Room] is a line with its [Settings]: the mode, how many may be inside,
//     for how long, and when it is open.
//   - A visitor is a person in the room, known by a number that is given on arrival
//     and never again. With a key (a user's id) one person has one place.
//   - A [Ticket] is a place in line, signed: whoever has it may ask for the place.
//   - A [Pass] is the right to be inside until a time: a JWT that others can check.
//   - A [Place] is where a visitor is: waiting, called, inside or gone.
//   - [Terms] are what the policies allow a move of the [Store] to do.
//
// # How data flows
//
//	enter ─▶ line ─▶ called ─▶ inside ─▶ gone
//	          ▲        │ (claims within          left, expired, revoked
//	          │        │  the claim window)
//	          └────────┘ did not come: skipped until it asks again,
//	                     gone when it has not asked for too long
//
// The three services carry the names of what they do:
//
//   - the waiting queue (waiting.go): enter, ask for the place, leave;
//   - the active queue (active.go): call from the front, claim, is this pass good,
//     renew, revoke;
//   - the expiration (expiration.go): what ends by time, from the front of a line
//     that is ordered by when.
//
// # Modes
//
// With [Teller] at most Capacity visitors are inside; when one leaves, the next is
// called in the same move. With [Park] Batch visitors are called every Interval,
// counted from the opening, and each pass ends Stay after its tick; places that
// nobody took lapse.
//
// # Guarantees
//
//   - Never are more than Capacity visitors inside, those who were called included,
//     over all instances: the number is that of the line of active visitors itself,
//     taken in the move that calls. Lowering the capacity lets nobody in until
//     enough have left, and sends nobody away.
//   - Nobody who keeps asking is overtaken or loses the place, over restarts of
//     the service; while it is away nobody's time runs.
//   - The position that a visitor is shown never rises.
//   - A slot is never idle for longer than ClaimWindow while a visitor who keeps
//     asking waits.
//
// Policies are pure functions: no I/O, no clock. Moves are atomic and belong to
// the [Store], whose clock decides every deadline.
package room
