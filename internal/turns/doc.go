// Package turns shares what a server can do, or hold, at a time among many clients: those who ask for little do not wait
// behind those who ask for much.
//
// A [Queue] is a fair queue. Its clock is virtual: it shows the latest start of the requests that were served. A request
// starts at that time or, if that is later, at the finish of the request before it of its flow, and it finishes later by its
// cost. Of those that wait, the one with the earliest finish is next.
package turns
