// Package watch shows visitors their place while they wait: it holds their streams
// of server-sent events, at a flat and small cost each.
//
// # Nouns
//
//   - A [Hub] has all streams of an instance.
//   - A [Stream] is the place of one visitor, sent on each change.
//   - A sink is the connection below a stream.
//
// # How data flows
//
//	Serve ─▶ first ask ─▶ head and first event ─▶ schedule ┐
//	  ┌────────────────── when it is due ◀─────────────────┤
//	  └▶ batch of one room ─▶ Engine.AskAll ─▶ event ──────┘
//	                                       └─▶ gone ─▶ closed
//
// # Events
//
// The data of an event is the visitor's answer, as the API has it. An event is
// written when the state or the position changed, and to a visitor inside each time
// its pass was renewed, so that the visitor always has a valid pass. When the place
// is gone, the last event is "gone" with {"reason"}: room.Left, room.Expired and so
// on, or "removed" if the room does not exist any more. A comment is written after
// 15 s of silence. After a lost connection clients reconnect within 2 to 5 seconds,
// spread at random.
//
// # Guarantees
//
//   - A stream over HTTP/1.1 without TLS has no goroutine and no buffer: its
//     connection is hijacked from the server, and a few workers write to all. Other
//     streams (HTTP/2, TLS) keep the goroutine of their handler.
//   - No write waits: a connection that accepts nothing within [WriteTime] is closed.
//     Until then the newest state replaces what was not written.
//   - A visitor counts as asking only while its connection is open. On Linux a
//     connection that acknowledges nothing for 30 s is closed.
//   - While the store is down streams stay open, and comments continue.
//   - At most [DefaultMaxStreams] streams are open, or as many as [WithMaxStreams]
//     sets, and at most [MaxPerPlace] of one place.
package watch
