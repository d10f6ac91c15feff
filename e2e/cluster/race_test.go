//go:build cluster && race

package cluster

// With the race detector, the tests also run a server that is built with it.
func init() { buildArgs = append(buildArgs, "-race") }
