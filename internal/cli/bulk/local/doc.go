// Package local runs a bulk engine in this process, on a data directory of its own.
package local
