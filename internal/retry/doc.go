// Package retry repeats requests after transient errors: a bounded number of times,
// with backoff and jitter, and after the delay that a server asks for.
package retry
