//go:build redis

package e2e

import "testing"

// newFleet starts servers on one Redis.
func newFleet(t *testing.T, count int, state string, args ...string) []*server {
	t.Helper()
	fleet := make([]*server, count)
	for i := range fleet {
		fleet[i] = newServer(t, append([]string{"--state", state}, args...)...)
		fleet[i].launch()
	}
	for _, s := range fleet {
		s.awaitReady()
	}
	return fleet
}
