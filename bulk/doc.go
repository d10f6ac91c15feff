// Package bulk runs bulk actions: large sets of jobs of many tenants. It schedules them
// so that no tenant can starve another, at rates that their targets can sustain, and
// counts them exactly.
//
// # Nouns
//
//   - A [Tenant] is a customer of the service that runs Sluice: the unit of
//     fairness and of rate limits.
//   - An [Action] is one bulk action: a set of jobs of one tenant, uploaded as
//     a stream and then sealed with its total.
//   - A stream is an action without an end: jobs that are enqueued one at a time, by
//     Engine.Enqueue, share the stream of their window of time.
//   - A [Job] is one unit of work. A Go function, a typed [Worker], a webhook or a
//     remote worker handles it.
//   - A [Target] is what jobs call. It may have limits of its own, and an operator may say
//     where it is and who may use it: [TargetLimits].
//   - A [Schedule] creates actions repeatedly, by a cron expression.
//   - An [Event] is a notification about an action or a job. It waits in the store's
//     outbox until a Publisher has published it.
//   - A [TraceContext] is the trace that an action belongs to. The action keeps it, so
//     that every worker continues the same trace.
//   - A lease is a job in flight: it has a deadline, and a [LeaseID] that fences late
//     acknowledgements.
//
// # How data flows
//
//	upload ─▶ fair queue ─▶ ready queue ─▶ in flight ─▶ done ─▶ aggregate
//	          (per action)   ▲  (bounded)      │
//	                         │                 │ throttled, failed with retries left
//	                         └── non-ready ◀───┘
//	                             (each job with its due time)
//
// The loops that move jobs are in package engine, and named for their roles:
//
//   - the fetcher moves jobs from the fair queue to the ready queue: it reads a
//     [Backlog], asks the policies ([Divide], [Priority], [Budget]) which jobs may pass,
//     and hands the [Grant]s to the store;
//   - the worker leases ready jobs, runs their handlers and settles outcomes;
//   - the dispatcher returns jobs that are due, or whose lease has expired, to the front
//     of their action's line;
//   - the aggregator reduces outcomes into results, batch by batch;
//   - the watcher drives the status machine, also after a crash;
//   - the scheduler creates the actions of schedules when they are due;
//   - the publisher, if there is one, hands events from the outbox to the Publisher.
//
// # Guarantees
//
//   - Every accepted job runs at least once and is counted exactly once. A job
//     is accepted when Engine.Append returns; it is counted when the store accepts its
//     outcome, in the same atomic operation that records it.
//   - Between backlogged tenants, attempts admitted differ by no more than their
//     weights, whether the rate limit or the workers are the bottleneck.
//   - The number of attempts started in a window never exceeds the limits of
//     that window, across restarts.
//   - With a Publisher, each transition of an action is published at least once, in
//     order for each action, after it is durable; so is each job that has finished, if
//     its action asks for it.
//
// Policies are pure functions: no I/O, no clock. Operations are atomic and belong to
// the [Store]. So decisions are tested without a store, and stores are tested by one
// suite, storetest.
//
// This package has the nouns and the policies, and imports little: a program that only calls a
// server, with package client, contains neither an engine nor a store.
package bulk
