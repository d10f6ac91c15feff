// Package e2e tests the real binary as users run it: over HTTP, from a shell, with Kafka clients,
// and killed at any moment.
package e2e
