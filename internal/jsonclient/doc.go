// Package jsonclient makes requests to the HTTP APIs of this repository: JSON both ways,
// problems as errors, and retries of requests that are safe to repeat. The clients of the
// parts are built on it.
package jsonclient
