// Package bulktest helps to test programs that run jobs with package bulk. It is for tests
// only.
//
// # Nouns
//
//   - [Work] and [Run] make one attempt of one job with a worker or with a mux's handlers,
//     without an engine: no store, no retries, no waiting. An [Attempt] is the result, with
//     assertions.
//   - An [Engine] is a whole engine.Engine on an embedded store in memory. It is stopped when
//     the test ends. [Engine.Run] creates an action and waits until it has finished.
//   - [RequireAction], [RequireJobs], [RequireDeadLetters] and [RequireCounts] assert which
//     jobs were inserted and how they ended.
//   - A [Target] is what jobs call. It throttles attempts above its rate, and counts. It is a
//     bulk.Handler and an http.Handler.
//
// # Guarantees
//
//   - An attempt runs the same code as the engine's workers: middleware, timeout, panics and
//     the kinds of errors are the same.
//   - Everything works inside a testing/synctest bubble, where minutes of retries take
//     milliseconds, and outside. Only HTTP does not: a Target behind a real connection must
//     be outside.
//   - Nothing waits for ever: see [Engine.Timeout].
//   - A failed assertion ends the test, and reports the actual state.
package bulktest
