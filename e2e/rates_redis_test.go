//go:build redis && long

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The accounts of one tenant have the requests of its quota together at three instances on one Redis: at all of them, at one, and at
// another; and an account has those that each may send. The instances leave nothing in Redis when nothing is limited.
func TestRequestRatesOfThreeInstancesAreOne(t *testing.T) {
	t.Parallel()
	const rate = 100
	redis := redistest.Start(t, redistest.Options{})
	var instances []*server
	for range 3 {
		s := withAccounts(t, "--state", redis.URL(), "--kafka", "off", "--access-requests-per-second", fmt.Sprint(2*rate))
		s.start()
		instances = append(instances, s)
	}
	first := instances[0]
	first.setQuota(`{"tenant":"acme","values":{"requests_per_second":100}}`)
	tokens := map[string]string{}
	for name, tenant := range map[string]string{"tenant": `,"tenants":["acme"]`, "account": ""} {
		var made struct{ Secret string }
		body := `{"name":"` + name + `","roles":["submitter"]` + tenant + `}`
		if err := first.as(adminToken, "POST", "/v1/tokens", body).json(&made); err != nil || made.Secret == "" {
			t.Fatalf("%s: no token: %v", name, err)
		}
		tokens[name] = made.Secret
	}
	at := func(name string, which ...int) (all []func(ctx context.Context, passed *atomic.Int64)) {
		for range 4 {
			for _, i := range which {
				all = append(all, func(ctx context.Context, passed *atomic.Int64) {
					for ctx.Err() == nil {
						a, err := instances[i].do("GET", "/v1/actions", "", nil, "Authorization", "Bearer "+tokens[name])
						if err == nil && a.status == http.StatusOK {
							passed.Add(1)
						}
						<-time.After(10 * time.Millisecond)
					}
				})
			}
		}
		return all
	}
	holdsRate(t, "of a tenant, at all instances", rate, at("tenant", 0, 1, 2))
	holdsRate(t, "of a tenant, at one instance", rate, at("tenant", 0))
	holdsRate(t, "of a tenant, at another instance", rate, at("tenant", 1))
	holdsRate(t, "of an account, at two instances", 2*rate, at("account", 1, 2))
	until.True(t, "nothing is told when nothing is limited", func() bool { return redis.Cli("EXISTS", "sluice:access:told") == "0" })
}
