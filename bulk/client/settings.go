package client

import (
	"context"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// Tenant returns the settings of a tenant.
func (c *Client) Tenant(ctx context.Context, id string) (wire.Tenant, error) {
	return ask[wire.Tenant](ctx, c, call{Method: "GET", Path: at("tenants", id)})
}

// SetTenant replaces the settings of a tenant; a Weight of 0 is its default, 1.
func (c *Client) SetTenant(ctx context.Context, id string, tenant wire.Tenant) (wire.Tenant, error) {
	return ask[wire.Tenant](ctx, c, call{Method: "PUT", Path: at("tenants", id), Body: tenant})
}

// Target returns the limits of a target.
func (c *Client) Target(ctx context.Context, name string) (wire.TargetLimits, error) {
	return ask[wire.TargetLimits](ctx, c, call{Method: "GET", Path: at("targets", name)})
}

// SetTarget replaces the limits of a target.
func (c *Client) SetTarget(ctx context.Context, name string, target wire.TargetLimits) (wire.TargetLimits, error) {
	return ask[wire.TargetLimits](ctx, c, call{Method: "PUT", Path: at("targets", name), Body: target})
}

// Type returns the settings of a job type.
func (c *Client) Type(ctx context.Context, name string) (wire.TypeLimits, error) {
	return ask[wire.TypeLimits](ctx, c, call{Method: "GET", Path: at("types", name)})
}

// SetType replaces the settings of a job type.
func (c *Client) SetType(ctx context.Context, name string, limits wire.TypeLimits) (wire.TypeLimits, error) {
	return ask[wire.TypeLimits](ctx, c, call{Method: "PUT", Path: at("types", name), Body: limits})
}

// Limits returns the limits of the whole service.
func (c *Client) Limits(ctx context.Context) (wire.Limits, error) {
	return ask[wire.Limits](ctx, c, call{Method: "GET", Path: at("limits")})
}

// SetLimits replaces the limits of the whole service.
func (c *Client) SetLimits(ctx context.Context, limits wire.Limits) (wire.Limits, error) {
	return ask[wire.Limits](ctx, c, call{Method: "PUT", Path: at("limits"), Body: limits})
}
