// Package bulk runs bulk actions: large sets of jobs that belong to many
// tenants, scheduled so that no tenant can starve another, at rates that the
// targets behind them can bear, and counted exactly.
//
// # Nouns
//
//   - A [Tenant] is a customer of the service that runs Sluice: the unit of
//     fairness and of rate limits.
//   - An [Action] is one bulk action: a set of jobs of one tenant, uploaded as
//     a stream and then sealed with its total.
//   - A [Job] is one unit of work. Its handler is a Go function, a typed [Worker],
//     a webhook or a remote worker.
//   - A [Target] is what jobs call. It may have a rate limit of its own.
//   - A [Schedule] makes an action again and again, by a cron expression.
//   - An [Event] is what others are told of an action or a job, by a [Publisher];
//     until it was taken it waits in the store's outbox.
//   - A [TraceContext] is where the spans of an action belong, which it keeps from
//     its creation on, so that whoever runs its jobs goes on with one trace.
//   - A lease is a job in flight: it has a deadline, and a [LeaseID] that
//     fences late acknowledgements.
//
// # How data flows
//
//	upload ─▶ fair queue ─▶ ready queue ─▶ in flight ─▶ done ─▶ aggregate
//	          (per action)   ▲  (bounded)      │
//	                         │                 │ throttled, failed for now
//	                         └── non-ready ◀───┘
//	                             (each job with the time it is due)
//
// The loops that move jobs along carry the names of their roles:
//
//   - the fetcher moves jobs from the fair queue to the ready queue: it reads a
//     [Backlog], asks the policies ([Divide], [Priority], [Budget]) who may pass,
//     and hands the [Grant]s to the store;
//   - the worker leases ready jobs, runs their handlers and settles outcomes;
//   - the dispatcher returns jobs that are due, or whose lease has expired, to
//     the front of their action's line;
//   - the aggregator reduces outcomes into results, batch by batch;
//   - the watcher drives the status machine and repairs what a crash left;
//   - the scheduler makes the actions of schedules when they are due;
//   - the publisher, where there is one, hands events from the outbox to the
//     [Publisher].
//
// # Guarantees
//
//   - Every accepted job runs at least once and is counted exactly once. A job
//     is accepted when [Engine.Append] returns; it is counted when the store
//     accepts its outcome, in the same atomic move that records it.
//   - Between backlogged tenants, attempts admitted differ by no more than
//     their weights, whether the rate limit or the workers are the bottleneck.
//   - The number of attempts started in a window never exceeds the limits of
//     that window, across restarts.
//   - With a Publisher, each move of an action is told at least once, in order for
//     each action, after it is durable; so is each job that is done for good,
//     where its action asks for it.
//
// Policies are pure functions: no I/O, no clock. Moves are atomic and belong to
// the [Store]. Everything that decides is therefore tested without a store, and
// everything that stores is tested by one suite, storetest.
package bulk
