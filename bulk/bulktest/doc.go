// Package bulktest helps to test programs that run jobs with package bulk. It is
// for tests only.
//
// # Nouns
//
//   - [Work] and [Run] make one attempt of one job with a worker or with the
//     handlers of a mux, without an engine: no store, no retries, no waiting. An
//     [Attempt] is how it ended, with assertions.
//   - An [Engine] is a whole bulk.Engine on an embedded store in memory. It is
//     stopped when the test ends. [Engine.Run] makes an action and waits for its end.
//   - [RequireAction], [RequireJobs], [RequireDeadLetters] and [RequireCounts]
//     assert what was inserted and what became of it.
//   - A [Target] is what jobs call, with a rate of its own: it throttles what comes
//     above it, and counts. It is a bulk.Handler and an http.Handler.
//
// # Guarantees
//
//   - An attempt goes through the code that the engine's workers run: middleware,
//     timeout, panics and the kinds of errors are the same.
//   - Everything works in a testing/synctest bubble, where minutes of retries pass in
//     milliseconds, and outside of one. HTTP is the exception: a Target behind a real
//     connection belongs outside.
//   - Nothing waits for ever: see [Engine.Timeout].
//   - An assertion that fails ends the test, and says what there is instead.
package bulktest
