// Package watch tells visitors where they are while they wait: it holds their
// streams of server-sent events, at a flat and small cost each.
//
// # Nouns
//
//   - A [Hub] has all streams of an instance.
//   - A [Stream] is the place of one visitor, told on each change.
//   - A sink is the connection below a stream.
//
// # How data flows
//
//	Serve ─▶ first ask ─▶ head and first event ─▶ schedule ┐
//	  ┌──────────────── by when it is due ◀────────────────┤
//	  └▶ batch of one room ─▶ Engine.AskAll ─▶ event ──────┘
//	                                       └─▶ gone ─▶ closed
//
// # Events
//
// Their data is the visitor's answer, as the API has it. One is written when the
// state or the position has changed, and to a visitor inside each time that its pass
// was renewed, so that the stream never ends on a pass that has. When the place is
// gone, the last event is "gone" with {"reason"}: room.Left, room.Expired and so on,
// or "removed" if the room is not there any more. A comment is written after 15 s of
// silence. After a lost connection clients come back within 2 to 5 seconds, spread
// at random.
//
// # Guarantees
//
//   - A stream over HTTP/1.1 without TLS has no goroutine and no buffer: its
//     connection is taken from the server, and a few workers write to all. Other
//     streams (HTTP/2, TLS) keep the goroutine of their handler.
//   - No write waits: what a connection does not take within [WriteTime] closes it.
//     Between, the newest state replaces what was not written.
//   - A visitor is asked for only while its connection is there. On Linux one that
//     does not acknowledge for 30 s is not.
//   - While the store is away streams stay, and comments go on.
//   - There are at most [DefaultMaxStreams], or as many as [WithMaxStreams] says, and
//     at most [MaxPerPlace] of one place.
package watch
