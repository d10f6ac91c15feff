package client

import (
	"context"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// Tenant returns the settings of a tenant.
func (c *Client) Tenant(ctx context.Context, id string) (tenant wire.Tenant, err error) {
	err = c.do(ctx, call{method: "GET", path: at("tenants", id)}, &tenant)
	return tenant, err
}

// SetTenant replaces the settings of a tenant; a Weight of 0 is its default, 1.
func (c *Client) SetTenant(ctx context.Context, id string, tenant wire.Tenant) (set wire.Tenant, err error) {
	err = c.do(ctx, call{method: "PUT", path: at("tenants", id), body: tenant}, &set)
	return set, err
}

// Target returns the limits of a target.
func (c *Client) Target(ctx context.Context, name string) (target wire.TargetLimits, err error) {
	err = c.do(ctx, call{method: "GET", path: at("targets", name)}, &target)
	return target, err
}

// SetTarget replaces the limits of a target.
func (c *Client) SetTarget(ctx context.Context, name string, target wire.TargetLimits) (set wire.TargetLimits, err error) {
	err = c.do(ctx, call{method: "PUT", path: at("targets", name), body: target}, &set)
	return set, err
}

// Type returns the settings of a job type.
func (c *Client) Type(ctx context.Context, name string) (limits wire.TypeLimits, err error) {
	err = c.do(ctx, call{method: "GET", path: at("types", name)}, &limits)
	return limits, err
}

// SetType replaces the settings of a job type.
func (c *Client) SetType(ctx context.Context, name string, limits wire.TypeLimits) (set wire.TypeLimits, err error) {
	err = c.do(ctx, call{method: "PUT", path: at("types", name), body: limits}, &set)
	return set, err
}

// Limits returns the limits of the whole service.
func (c *Client) Limits(ctx context.Context) (limits wire.Limits, err error) {
	err = c.do(ctx, call{method: "GET", path: at("limits")}, &limits)
	return limits, err
}

// SetLimits replaces the limits of the whole service.
func (c *Client) SetLimits(ctx context.Context, limits wire.Limits) (set wire.Limits, err error) {
	err = c.do(ctx, call{method: "PUT", path: at("limits"), body: limits}, &set)
	return set, err
}
