// Package outbox enqueues bulk jobs in transactions of the user's own PostgreSQL.
//
// # Nouns
//
//   - The outbox is a table of the user's database: see [Schema]. A row is one job.
//   - [Enqueue] and [EnqueueSQL] insert a row in the caller's transaction.
//   - A [Relay] sends committed rows to a server, and deletes those that it accepted.
//
// # Guarantees
//
//   - A job is enqueued if its transaction commits, and not if it does not.
//   - Each row has a unique key, so a row that is sent again is recognized by the server: it is
//     enqueued once, over kills of relays, servers and the database. The server remembers a key
//     until bulk.retention after its job has finished.
//   - Several relays may run: each row is locked by the one that sends it.
//   - A row that the server refuses does not delay others.
//   - Memory is bounded: a relay sends at most 64 rows, of at most 1 MiB each, at a time.
package outbox
