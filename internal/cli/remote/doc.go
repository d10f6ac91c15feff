// Package remote connects commands to the HTTP API of a server: the flags --server and --json, and
// a client for the requests that no typed client has.
package remote
