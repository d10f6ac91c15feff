package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The dashboard of the real server shows what its parts have, on each kind of state, to those who have signed in.
func TestDashboard(t *testing.T) {
	t.Parallel()
	for name, args := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withAccounts(t, args(t)...)
			s.start()
			viewer := s.token("viewer", access.Viewer)
			s.as(adminToken, "PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":2}`)
			s.as(adminToken, "POST", "/v1/actions", `{"id":"invoices","tenant":"acme","type":"mail"}`)
			s.as(adminToken, "PUT", "/v1/schedules/nightly", `{"cron":"0 3 * * *","time_zone":"Asia/Seoul","tenant":"acme","type":"mail","jobs":[1]}`)
			s.as(adminToken, "POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1}`)
			until.True(t, "the topic of events is there", func() bool {
				a, err := s.do("GET", "/ui/topics", "", nil, "Cookie", "sluice-token="+viewer)
				return err == nil && strings.Contains(string(a.body), "sluice.bulk.events")
			})
			for page, says := range map[string]string{
				"": "The last hour", "bulk": ">invoices<", "bulk/action?name=invoices": "About the action", "bulk/tenants": "Tenants", "bulk/targets": "Targets",
				"bulk?tenant=acme": ">invoices<", "bulk?tenant=other": "No such action.", "bulk/streams": ">stream-", "bulk/schedules": ">nightly<", "bulk/schedule?name=nightly": "Asia/Seoul",
				"bulk/failures": "No job has failed", "bulk/workers": ">echo<",
				"rooms": ">shop<", "rooms/room?name=shop": "bank teller", "topics": "sluice.bulk.events", "topics/topic?name=sluice.bulk.events": "retention.ms",
				"topics/groups": "Consumer groups", "cluster": ">alive<", "settings": "admin_token: (hidden)",
			} {
				for _, cookie := range []string{"sluice-token=" + viewer, ""} {
					a, err := s.do("GET", "/ui/"+page, "", nil, "Cookie", cookie)
					signedIn := !strings.Contains(string(a.body), `action="/ui/sign-in"`)
					if err != nil || a.status != http.StatusOK || signedIn != (cookie != "") || strings.Contains(string(a.body), says) != signedIn {
						t.Errorf("/ui/%s with the cookie %q: %d %v, want %q:\n%s", page, cookie, a.status, err, says, a.body)
					}
				}
			}
		})
	}
}
