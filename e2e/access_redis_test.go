//go:build redis

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
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

// Three instances on one Redis read one revocation list and one file of grants: a certificate that is revoked, or loses its grant,
// loses its streams and Kafka connections at all three, and another keeps its rights.
func TestCertificatesOfThreeInstances(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	all := []string{"name:cert:stays viewer", "name:cert:revoked viewer", "name:cert:lost viewer"}
	shared := certify(t, all...)
	var instances []*certified
	for range 3 {
		instances = append(instances, shared.another(t, "--state", redis.URL()))
	}
	stays, revoked, lost := shared.authority.Issue("stays"), shared.authority.Issue("revoked"), shared.authority.Issue("lost")
	cuts := func(shown certtest.Files, do func()) {
		t.Helper()
		var ended []func()
		for _, s := range instances {
			ended = append(ended, s.watch(shown), s.connection(shown))
		}
		do()
		for _, wait := range ended {
			wait()
		}
	}
	cuts(revoked, func() { shared.authority.Revoke(shared.revokedIn, revoked) })
	cuts(lost, func() { shared.grant(t, all[:2]...) })
	for i, s := range instances {
		for name, test := range map[string]struct {
			shown certtest.Files
			want  int
		}{"stays": {stays, http.StatusOK}, "revoked": {revoked, 0}, "lost": {lost, http.StatusForbidden}} {
			if status, text := s.get(s.client(test.shown), "/v1/actions", ""); status != test.want {
				t.Errorf("instance %d answers %s with %d %s, want %d", i+1, name, status, text, test.want)
			}
		}
	}
}
