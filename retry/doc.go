// Package retry makes requests again that failed for a while only: so often, with
// pauses that grow, vary by chance, and honour what a server asks for.
package retry
