//go:build redis

package e2e

import (
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// Three instances on one Redis share the tokens: a revocation at one ends the streams at the others.
func TestTokensOfThreeInstances(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	var instances []*server
	for range 3 {
		s := withAccounts(t, "--state", redis.URL(), "--kafka", "off")
		s.start()
		instances = append(instances, s)
	}
	first := instances[0]
	first.as(adminToken, "POST", "/v1/actions", `{"id":"a","tenant":"acme","type":"email"}`)
	for i, s := range instances[1:] {
		name := fmt.Sprint("viewer-", i)
		secret := s.token(name, access.Viewer)
		s.revokedCutsStreams(first, name, secret)
	}
}
