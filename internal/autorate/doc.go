// Package autorate finds the rate that a service sustains from how its requests end: targets
// of bulk actions that are set to "auto", and upstreams of waiting rooms. It is a policy
// without I/O or clock: a [Finder] observes a [Sample] of each window, and says how many
// requests per second may start.
package autorate
