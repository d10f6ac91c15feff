// Package room is a virtual waiting room: it holds visitors in a fair line in front of
// a service, and lets in as many as the service can handle.
//
// # Nouns
//
//   - A room is a line with its [Settings]: the mode, how many visitors may be
//     inside, for how long, and when it is open.
//   - A visitor is a person in the room, known by a number that is never reused. A
//     visitor with a key (a user's id) has one place; with TokenKeys a key needs a
//     token that the shop has signed.
//   - A ticket is a place in line, signed: whoever has it may ask for the place.
//   - A pass is the right to be inside until a time: a JWT that others can check.
//   - A [Place] is where a visitor is: waiting, called, inside or gone.
//   - [Terms] are what the policies allow an operation of the [Store] to do.
//
// # How data flows
//
//	enter ─▶ line ─▶ called ─▶ inside ─▶ gone
//	          ▲        │ (claims within          left, expired, revoked
//	          │        │  the claim window)
//	          └────────┘ no-show: skipped until it asks again,
//	                     gone when it has not asked for too long
//
// Three services of package engine follow the flow:
//
//   - the waiting queue (waiting.go): enter, ask for the place, leave;
//   - the active queue (active.go): call from the front, claim, check, renew and
//     revoke passes;
//   - the expiration (expiration.go): ends passes, claim windows and places in the
//     order of their deadlines.
//
// # Modes
//
// With [Teller] at most Capacity visitors are inside; when one leaves, the next is
// called in the same operation. With [Park] Batch visitors are called every Interval,
// counted from the opening, and each pass ends Stay after its tick; unused places of a
// batch lapse.
//
// # Guarantees
//
//   - Never are more than Capacity visitors inside, called ones included, over all
//     instances: the operation that calls counts the active visitors themselves.
//     Lowering the capacity lets nobody in until enough have left, and sends nobody
//     away.
//   - Nobody who keeps asking is overtaken or loses the place, over restarts of
//     the service; while it is away no deadline of a visitor passes.
//   - The position that a visitor is shown never rises.
//   - A slot is never idle for longer than ClaimWindow while a visitor who keeps
//     asking waits.
//
// Policies are pure functions: no I/O, no clock. Operations are atomic and belong to
// the [Store], whose clock decides every deadline.
//
// This package has the nouns, and what stores need. It imports little: a program that only calls a
// server, with package client, contains neither an engine nor a store.
package room
