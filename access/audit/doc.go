// Package audit keeps the trail of a server: who did what, from where, and whether it was allowed.
//
// # Nouns
//
//   - An [Entry] is one act: a request that changes something, a refusal, or the start or the stop of the server.
//   - A [Trail] takes entries from all edges. It appends them to a file, one line of JSON each, and hands them to a
//     publisher.
//
// # Guarantees
//
//   - Nothing waits for the trail. The file and the publisher have a queue of [QueueSize] entries each. Further
//     entries are counted, and an entry with the operation "lost" has the count as soon as there is room.
//   - A write that fails is repeated until it succeeds. A line that a crash has torn stays alone in its line.
//   - Refusals and failed authentications of one address and name are counted after the first [Burst] within a
//     [Window]; an entry with the count follows at its end. At most [MaxSenders] are told apart.
//   - An entry has no header, query, body or record. Each text in it is cut at [MaxText] bytes, and secrets of
//     tokens in it are hidden.
//   - There are at most Keep+1 files of at most MaxBytes each.
package audit
