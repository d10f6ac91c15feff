// Package engine runs rooms: it connects a [room.Store], the policies and what is signed.
//
// # Nouns
//
//   - An [Engine] serves the rooms of a store: the waiting queue, the active queue and the
//     expiration. It is a [lifecycle.Service].
//   - A [Room] is a room as it is stored, a [View] what operators see of it.
//   - A [Ticket] is a place in line, and a [Pass] the right to be inside, both signed by a
//     [Keyring]; [TokenKeys] check who a shop says that a visitor is.
//   - An [Answer] is what a visitor is told, and an [Outlook] what an estimate is made from.
//   - A [Publisher] takes the events that wait in the store.
//
// # Guarantees
//
// They are those of package room. Several engines may serve one store: each operation of the store
// carries the [room.Terms] within which it is allowed.
package engine
