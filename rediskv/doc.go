// Package rediskv is what the stores on Redis and Valkey have in common: how a server
// is found and checked, how scripts are put together and called in bounded time, and
// what an error of the server means.
package rediskv
