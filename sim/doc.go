// Package sim holds scenarios of the whole system in virtual time. It is
// tests only: nothing imports it.
//
// # Nouns
//
//   - A scenario is a test that runs an engine in a testing/synctest bubble, so
//     that minutes of schedule take milliseconds.
//   - A simTarget is what jobs call: a handler in memory with a rate limit in
//     fixed windows and a latency, that remembers what it was asked, by tenant
//     and window.
//
// # Guarantees
//
//   - No sockets, no files, no clock other than the bubble's.
package sim
