// Package api is the HTTP edge of topic, for what the Kafka protocol has no
// request for: the records that are delayed.
//
// # Nouns
//
//   - [Broker] is what the edge needs of topic's broker.
//   - A [Delayed] record waits until it is due; its id names it.
//   - A [Problem] is an error as RFC 9457 has it, with a code.
//
// # Guarantees
//
//   - Every answer that is not a success is a problem in JSON, with a code that
//     programs can rely on and a text that says what would be right.
//   - A record whose cancellation was answered with 204 never appears.
//   - No request has a body, and no list more than [MaxDelayed] records.
package api
