// Package api is the HTTP edge of topic: delayed records and the nodes of a cluster, for
// which the Kafka protocol has no request, and the lag of groups, for programs without a
// Kafka client.
//
// # Nouns
//
//   - [Broker] is what the edge needs of topic's broker.
//   - [Register] adds the operations to the API that all parts share.
//   - A [Delayed] record waits until it is due; its id names it.
//   - A [Group] has how far it has read each partition, and its lag.
//   - A [Cluster] is what a node knows of all nodes.
//   - A [Problem] is an error as RFC 9457 defines it, with a code.
//
// # Guarantees
//
//   - Every answer that is not a success is a problem in JSON, with a code that
//     programs can rely on and a text that says what would be right.
//   - A record whose cancellation was answered with 204 never appears.
//   - Any node answers for all partitions: the broker asks the nodes that lead them, once.
//   - No list has more than [MaxDelayed] records.
package api
