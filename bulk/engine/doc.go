// Package engine runs bulk actions: it connects a [bulk.Store], the policies of package bulk and the
// loops that move jobs.
//
// # Nouns
//
//   - An [Engine] has all loops of one process: the fetcher, the workers, the dispatcher, the
//     aggregator, the watcher, the scheduler and the publisher. It is a [lifecycle.Service].
//   - A [NewJob] is one job to enqueue, a [Change] one for many actions, a [Report] what a remote
//     worker says of a job.
//   - A [Publisher] takes the events that wait in the store.
//   - An [Explanation] says why a job does not run yet.
//
// # Guarantees
//
// They are those of package bulk. An engine keeps nothing that the store does not have, but
// measurements: one that is killed is continued by the next on the same store.
package engine
