// Package bench measures the parts of sluice and their peers in one run, so that the numbers can be
// compared: the same jobs and records, the same definitions, the same disk. Files that begin with
// topic_ measure topic, compared with klite, JetStream and Redis Streams; those that begin with
// room_ or counting measure room, compared with a bare handler, a table and other ways to count;
// the others measure bulk, compared with asynq and river.
//
// # Nouns of bulk
//
//   - A [System] is one of the compared systems, with its settings: [Environment.Systems] lists them.
//     It opens fresh, empty queues.
//   - A [Queue] takes batches of jobs from a few producers, and then runs them.
//   - A [Workload] is the number of tenants and their rate.
//   - A measure is a function that drives a queue: [Enqueue], [Run], [Load]; and
//     [Environment.Memory], which starts a process of its own.
//
// # Nouns of topic
//
//   - A [Broker] is one of the compared brokers, with its settings: [Environment.Brokers] lists them.
//     It starts an empty [Server], always a process of its own.
//   - A [Line] is a connection that produces records.
//   - [Environment.Clusters] are clusters of three with three replicas, measured by [Replicate].
//   - Measures of all are [Produce], [OneAtATime] and [AtRate]; those of sluice alone are
//     [Environment.BySettings], [Environment.View] and [Environment.Delay].
//
// # Nouns of room
//
//   - A [Hall] has several servers of a waiting room, with queues of the length that [Hall.FillTo]
//     sets; [Served] is what each of them did in one measure.
//   - A way of counting the visitors inside is one of [CountingWays]: measured by
//     [Environment.Counting], and under failures by [Environment.CountingDrift] and
//     [Environment.RoomDrift].
//   - [Environment.Streams] measures event streams.
//
// # What it guarantees
//
//   - A measure that loses a job or a record, or cannot reach a peer, is an error, never a number.
//   - Peers are real servers, started here with sockets and files in a directory of their own, and
//     stopped by Close, or by the kernel when this process dies. If one is not installed, the error
//     says how to get it.
//
// The package needs Linux: it reads /proc and ties the servers' lives to its own.
package bench
