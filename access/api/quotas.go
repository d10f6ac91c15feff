package api

import (
	"cmp"
	"context"
	"strings"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/internal/edge"
)

// Quota is the quotas of an entity in the API.
type Quota struct {
	User   string             `json:"user,omitempty" doc:"The name of an account, or <default>: each without one of its own."`
	Client string             `json:"client_id,omitempty" doc:"What Kafka clients call themselves, or <default>."`
	Tenant string             `json:"tenant,omitempty" doc:"A tenant, or <default>; without the other two."`
	Values map[string]float64 `json:"values" nullable:"false" doc:"Of users: max_topics, max_partitions, max_groups, max_rooms. Of users and client ids: producer_byte_rate, consumer_byte_rate. Of tenants: requests_per_second. To set, 0 removes one, and those that are not named stay."`
}

// Quotas are all quotas, in the order of their creation.
type Quotas struct {
	Quotas []Quota `json:"quotas" nullable:"false"`
}

// registerQuotas adds the operations of quotas.
func registerQuotas(p *edge.Part, s *server) {
	edge.Register(p, edge.Operation{ID: "list-quotas", Route: "GET /v1/quotas", Summary: "All quotas"}, on(s, s.quotas))
	edge.Register(p, edge.Operation{
		ID: "set-quota", Route: "PATCH /v1/quotas", Summary: "Set quotas of an entity, or remove them",
		Description: "They count at once here, and within 5 seconds at all instances. Nothing that exists is removed.",
	}, on(s, s.setQuota))
}

func (s *server) quotas(context.Context, *struct{}) (*object[Quotas], error) {
	out := &object[Quotas]{Body: Quotas{Quotas: []Quota{}}}
	for _, q := range s.accounts.Quotas() {
		out.Body.Quotas = append(out.Body.Quotas, viewQuota(q))
	}
	return out, nil
}

func viewQuota(q access.Quota) Quota {
	return Quota{User: q.User, Client: q.Client, Tenant: q.Tenant, Values: q.Rates}
}

// setQuota answers what the entity has after the change.
func (s *server) setQuota(ctx context.Context, in *object[Quota]) (*object[Quota], error) {
	change := access.Quota{User: in.Body.User, Client: in.Body.Client, Tenant: in.Body.Tenant, Rates: in.Body.Values}
	audit.About(ctx, "quota:"+strings.Join([]string{change.User, change.Client, change.Tenant}, "/"))
	refused, err := s.accounts.ChangeQuotas(ctx, []access.Quota{change}, false)
	if err := cmp.Or(err, refused[0]); err != nil {
		return nil, err
	}
	out := &object[Quota]{Body: in.Body}
	out.Body.Values = map[string]float64{}
	for _, q := range s.accounts.Quotas() {
		if q.User == change.User && q.Client == change.Client && q.Tenant == change.Tenant {
			out.Body = viewQuota(q)
		}
	}
	return out, nil
}
