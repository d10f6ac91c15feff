package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/edge"
)

func (s *server) registerSettings() {
	register(s, "get-tenant", "GET /v1/tenants/{id}", "The settings of a tenant", s.tenant)
	register(s, "set-tenant", "PUT /v1/tenants/{id}", "Replace the settings of a tenant", s.setTenant)
	register(s, "get-target", "GET /v1/targets/{name}", "The limits of a target", s.target)
	register(s, "set-target", "PUT /v1/targets/{name}", "Replace the limits of a target", s.setTarget)
	register(s, "get-type", "GET /v1/types/{type}", "The settings of a job type", s.jobType)
	register(s, "set-type", "PUT /v1/types/{type}", "Replace the settings of a job type", s.setJobType)
	register(s, "get-limits", "GET /v1/limits", "The limits of the whole service", s.limits)
	register(s, "set-limits", "PUT /v1/limits", "Replace the limits of the whole service", s.setLimits)
}

type inTenant struct {
	ID string `path:"id" maxLength:"256" pattern:"^[^\\x00-\\x1f\\x7f]+$" doc:"1 to 256 printable characters."`
}

type inSetTenant struct {
	ID   string `path:"id" maxLength:"256" pattern:"^[^\\x00-\\x1f\\x7f]+$" doc:"1 to 256 printable characters."`
	Body wire.Tenant
}

func (s *server) tenant(ctx context.Context, in *inTenant) (*object[wire.Tenant], error) {
	if !sees(ctx, in.ID) {
		return nil, edge.Refuse(http.StatusNotFound, wire.CodeNotFound, fmt.Sprintf("there is no tenant %q", in.ID))
	}
	settings, err := s.engine.Settings(ctx)
	if err != nil {
		return nil, err
	}
	return s.tenantAnswer(ctx, in.ID, settings.Tenants[in.ID].WithDefaults())
}

func (s *server) setTenant(ctx context.Context, in *inSetTenant) (*object[wire.Tenant], error) {
	tenant := bulk.Tenant{
		BasePriority: in.Body.BasePriority, Weight: in.Body.Weight,
		RequestsPerSecond: in.Body.RequestsPerSecond, Concurrency: in.Body.Concurrency, Pacing: bulk.Pacing(in.Body.Pacing),
		Keys: map[string]bulk.KeyLimit{}, MaxActions: in.Body.MaxActions, MaxJobs: in.Body.MaxJobs, MaxBytes: in.Body.MaxBytes,
	}.WithDefaults()
	for expression, l := range in.Body.Keys {
		tenant.Keys[expression] = bulk.KeyLimit{RequestsPerSecond: l.RequestsPerSecond, Concurrency: l.Concurrency, Pacing: bulk.Pacing(l.Pacing), Cost: l.Cost}
	}
	if err := s.engine.Set(ctx, bulk.SettingsChange{Name: in.ID, Tenant: &tenant}); err != nil {
		return nil, err
	}
	return s.tenantAnswer(ctx, in.ID, tenant)
}

// tenantAnswer returns what is set of a tenant, and what it has stored if that is known.
func (s *server) tenantAnswer(ctx context.Context, name string, t bulk.Tenant) (*object[wire.Tenant], error) {
	counts, err := s.engine.StoredOf(ctx, []string{name})
	if err != nil && !errors.Is(err, bulk.ErrUnavailable) {
		return nil, err
	}
	body := wire.Tenant{
		BasePriority: t.BasePriority, Weight: t.Weight,
		RequestsPerSecond: t.RequestsPerSecond, Concurrency: t.Concurrency, Pacing: string(t.Pacing), Keys: map[string]wire.KeyLimit{},
		MaxActions: t.MaxActions, MaxJobs: t.MaxJobs, MaxBytes: t.MaxBytes,
	}
	for expression, l := range t.Keys {
		body.Keys[expression] = wire.KeyLimit{RequestsPerSecond: l.RequestsPerSecond, Concurrency: l.Concurrency, Pacing: string(l.Pacing), Cost: l.Cost}
	}
	if stored, known := counts[name]; known {
		body.Stored = &wire.Stored{Actions: stored.Actions, Jobs: stored.Jobs, Bytes: stored.Bytes}
	}
	return &object[wire.Tenant]{Body: body}, nil
}

type inTarget struct {
	Name string `path:"name" maxLength:"256" pattern:"^[^\\x00-\\x1f\\x7f]+$" doc:"1 to 256 printable characters."`
}

type inSetTarget struct {
	Name string `path:"name" maxLength:"256" pattern:"^[^\\x00-\\x1f\\x7f]+$" doc:"1 to 256 printable characters."`
	Body targetLimits
}

// targetLimits is wire.TargetLimits with the schema of its rate.
type targetLimits struct {
	RequestsPerSecond targetRate `json:"requests_per_second" required:"false" doc:"Limits the attempts started against the target; auto finds the rate that the target sustains. Default 0: no limit."`
	Concurrency       int        `json:"concurrency" required:"false" minimum:"0" maximum:"1000000" doc:"Limits the attempts in flight against the target. Default 0: as many as the target can take, which the server finds out."`
	Pacing            string     `json:"pacing,omitempty" enum:"window,smooth" doc:"How the rate is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window."`
	URLPrefix         string     `json:"url_prefix,omitempty" maxLength:"2048" doc:"Where the target is: requests go to URLs below it only, and actions that name the target give a path below it. Default: none, actions give the whole URL."`
	Secrets           []string   `json:"secrets,omitempty" nullable:"false" maxItems:"10" writeOnly:"true" doc:"The secrets that sign requests to the target, the current one first; they need a url_prefix. Absent: as they are; an empty list: those of the server's settings."`
	SecretCount       int        `json:"secret_count,omitempty" readOnly:"true" doc:"How many secrets are stored. A PUT ignores it."`
	Tenants           []string   `json:"tenants,omitempty" nullable:"false" maxItems:"1000" doc:"The tenants that may use the target; they need a url_prefix. Default: all."`
	Found             float64    `json:"found_requests_per_second,omitempty" readOnly:"true" doc:"The rate that holds at present, where requests_per_second is auto. A PUT ignores it."`
	FoundConcurrency  int        `json:"found_concurrency,omitempty" readOnly:"true" doc:"How many attempts this server lets be in flight at present, where concurrency is 0. A PUT ignores it."`
	DownSince         *time.Time `json:"down_since,omitempty" readOnly:"true" doc:"Since when this server takes the target for down: its jobs wait, and one attempt in 2 s probes it. A PUT ignores it."`
}

type targetRate struct{ wire.Rate }

// Schema implements huma.SchemaProvider.
func (targetRate) Schema(huma.Registry) *huma.Schema {
	least, most := 0.0, float64(wire.MaxRate)
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeNumber, Format: "double", Minimum: &least, Maximum: &most},
		{Type: huma.TypeString, Enum: []any{"auto"}},
	}}
}

func (s *server) target(ctx context.Context, in *inTarget) (*object[targetLimits], error) {
	settings, err := s.engine.Settings(ctx)
	if err != nil {
		return nil, err
	}
	return s.targetAnswer(ctx, in.Name, settings.Targets[in.Name])
}

// targetAnswer returns what is set, and what was found.
func (s *server) targetAnswer(ctx context.Context, name string, limits bulk.TargetLimits) (*object[targetLimits], error) {
	body := targetLimits{
		RequestsPerSecond: targetRate{wire.Rate(limits.RequestsPerSecond)}, Concurrency: limits.Concurrency, Pacing: string(limits.Pacing),
		URLPrefix: limits.URLPrefix, SecretCount: len(limits.Secrets), Tenants: limits.Tenants,
	}
	if limits.Auto {
		found, err := s.engine.FoundRate(ctx, name)
		if err != nil {
			return nil, err
		}
		body.RequestsPerSecond, body.Found = targetRate{wire.Auto}, found
	}
	load := s.engine.FoundLoad(name)
	body.DownSince = optional(load.DownSince)
	if limits.Concurrency == 0 {
		body.FoundConcurrency = load.Concurrency
	}
	return &object[targetLimits]{Body: body}, nil
}

func (s *server) setTarget(ctx context.Context, in *inSetTarget) (*object[targetLimits], error) {
	target := bulk.TargetLimits{
		RequestsPerSecond: float64(in.Body.RequestsPerSecond.Rate), Concurrency: in.Body.Concurrency, Pacing: bulk.Pacing(in.Body.Pacing),
		URLPrefix: in.Body.URLPrefix, Secrets: in.Body.Secrets, Tenants: in.Body.Tenants,
	}
	if target.Secrets == nil { // Nobody can read them, and so nobody can repeat them.
		settings, err := s.engine.Settings(ctx)
		if err != nil {
			return nil, err
		}
		stored := settings.Targets[in.Name]
		if len(stored.Secrets) > 0 && stored.URLPrefix != target.URLPrefix {
			return nil, edge.Invalid("secrets", "they are for the present url_prefix: with another one, give them again, or [] to remove them")
		}
		target.Secrets = stored.Secrets
	}
	if in.Body.RequestsPerSecond.Rate == wire.Auto {
		target.RequestsPerSecond, target.Auto = 0, true
	}
	if err := s.engine.Set(ctx, bulk.SettingsChange{Name: in.Name, Target: &target}); err != nil {
		return nil, err
	}
	return s.targetAnswer(ctx, in.Name, target)
}

type inType struct {
	Type string `path:"type" pattern:"^[A-Za-z0-9._:-]{1,128}$" doc:"1 to 128 of letters, digits and . _ : -"`
}

type inSetType struct {
	Type string `path:"type" pattern:"^[A-Za-z0-9._:-]{1,128}$" doc:"1 to 128 of letters, digits and . _ : -"`
	Body wire.TypeLimits
}

func (s *server) jobType(ctx context.Context, in *inType) (*object[wire.TypeLimits], error) {
	settings, err := s.engine.Settings(ctx)
	if err != nil {
		return nil, err
	}
	return s.typeAnswer(in.Type, settings.Types[in.Type]), nil
}

func (s *server) setJobType(ctx context.Context, in *inSetType) (*object[wire.TypeLimits], error) {
	limits := bulk.TypeLimits{
		Concurrency: in.Body.Concurrency, TotalConcurrency: in.Body.TotalConcurrency,
		RequestsPerSecond: in.Body.RequestsPerSecond, Pacing: bulk.Pacing(in.Body.Pacing),
	}
	if err := s.engine.Set(ctx, bulk.SettingsChange{Name: in.Type, Type: &limits}); err != nil {
		return nil, err
	}
	return s.typeAnswer(in.Type, limits), nil
}

// typeAnswer shows what holds: the default of the config where nothing is set.
func (s *server) typeAnswer(name string, limits bulk.TypeLimits) *object[wire.TypeLimits] {
	return &object[wire.TypeLimits]{Body: wire.TypeLimits{
		Concurrency: cmp.Or(limits.Concurrency, s.config.For(name).Workers), TotalConcurrency: limits.TotalConcurrency,
		RequestsPerSecond: limits.RequestsPerSecond, Pacing: string(limits.Pacing),
	}}
}

func (s *server) limits(ctx context.Context, _ *struct{}) (*object[wire.Limits], error) {
	settings, err := s.engine.Settings(ctx)
	if err != nil {
		return nil, err
	}
	if settings.Limits != nil {
		return limitsAnswer(*settings.Limits), nil
	}
	return limitsAnswer(bulk.Limits{RequestsPerSecond: max(0, s.config.RequestsPerSecond)}), nil
}

func (s *server) setLimits(ctx context.Context, in *object[wire.Limits]) (*object[wire.Limits], error) {
	limits := bulk.Limits{RequestsPerSecond: in.Body.RequestsPerSecond, Concurrency: in.Body.Concurrency, Pacing: bulk.Pacing(in.Body.Pacing)}
	if err := s.engine.Set(ctx, bulk.SettingsChange{Limits: &limits}); err != nil {
		return nil, err
	}
	return limitsAnswer(limits), nil
}

func limitsAnswer(l bulk.Limits) *object[wire.Limits] {
	return &object[wire.Limits]{Body: wire.Limits{RequestsPerSecond: l.RequestsPerSecond, Concurrency: l.Concurrency, Pacing: string(l.Pacing)}}
}
