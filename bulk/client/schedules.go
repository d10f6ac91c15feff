package client

import (
	"context"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// PutSchedule creates a schedule, or replaces the requested fields of an existing one.
func (c *Client) PutSchedule(ctx context.Context, name string, schedule wire.NewSchedule) (wire.Schedule, error) {
	return ask[wire.Schedule](ctx, c, call{Method: "PUT", Path: at("schedules", name), Body: schedule})
}

// Schedule returns one schedule with its jobs.
func (c *Client) Schedule(ctx context.Context, name string) (wire.Schedule, error) {
	return ask[wire.Schedule](ctx, c, call{Method: "GET", Path: at("schedules", name)})
}

// Schedules returns all schedules by name, without their jobs.
func (c *Client) Schedules(ctx context.Context) ([]wire.Schedule, error) {
	all, err := ask[wire.Schedules](ctx, c, call{Method: "GET", Path: at("schedules")})
	return all.Schedules, err
}

// RemoveSchedule removes a schedule. Its actions continue. A retry after a failed connection
// may return that there is no such schedule.
func (c *Client) RemoveSchedule(ctx context.Context, name string) error {
	_, err := c.api.Do(ctx, call{Method: "DELETE", Path: at("schedules", name)}, nil)
	return err
}

// PauseSchedule starts no further run until the schedule is resumed.
func (c *Client) PauseSchedule(ctx context.Context, name string) (wire.Schedule, error) {
	return ask[wire.Schedule](ctx, c, call{Method: "POST", Path: at("schedules", name, "pause")})
}

// ResumeSchedule continues a paused schedule, at its next time.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (wire.Schedule, error) {
	return ask[wire.Schedule](ctx, c, call{Method: "POST", Path: at("schedules", name, "resume")})
}

// RunSchedule starts a run at once, and returns its action. It is not retried after a failed
// connection: that could start two runs.
func (c *Client) RunSchedule(ctx context.Context, name string) (wire.Created, error) {
	return ask[wire.Created](ctx, c, call{Method: "POST", Path: at("schedules", name, "run"), Once: true})
}
