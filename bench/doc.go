// Package bench runs bulk beside peers, asynq and river, in one process and in
// one run, so that their numbers can be compared: the same jobs, the same
// definitions, the same disk.
//
// # Nouns
//
//   - A [System] is one of those compared, with its settings: [Systems] lists
//     them. It opens fresh, empty queues.
//   - A [Queue] takes batches of jobs from a few producers, and then runs them.
//   - A [Workload] says how many tenants there are and what their rate is.
//   - A measure is a function that drives a queue: [Enqueue], [Run], [Load]; and
//     [Memory], which starts a process of its own.
//
// # What it guarantees
//
//   - A measure that loses a job, or cannot reach a peer, is an error, never a
//     number.
//   - Redis and PostgreSQL are real servers, started here with sockets and files
//     in a directory of their own, and stopped by Close, or by the kernel when
//     this process dies. Where one is not installed, the error says how to.
//
// The package needs Linux: it reads /proc and ties the servers' lives to its own.
package bench
