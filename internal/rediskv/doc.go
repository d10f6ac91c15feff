// Package rediskv has the common parts of stores on Redis and Valkey: connecting to a
// server and checking it, calling scripts in bounded time, and turning errors of the
// server into those of the store.
package rediskv
