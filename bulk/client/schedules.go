package client

import (
	"context"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// PutSchedule makes a schedule, or replaces what one of that name asks for.
func (c *Client) PutSchedule(ctx context.Context, name string, schedule wire.NewSchedule) (stored wire.Schedule, err error) {
	err = c.do(ctx, call{method: "PUT", path: at("schedules", name), body: schedule}, &stored)
	return stored, err
}

// Schedule returns one schedule with its jobs.
func (c *Client) Schedule(ctx context.Context, name string) (schedule wire.Schedule, err error) {
	err = c.do(ctx, call{method: "GET", path: at("schedules", name)}, &schedule)
	return schedule, err
}

// Schedules returns all schedules by name, without their jobs.
func (c *Client) Schedules(ctx context.Context) ([]wire.Schedule, error) {
	var all wire.Schedules
	err := c.do(ctx, call{method: "GET", path: at("schedules")}, &all)
	return all.Schedules, err
}

// RemoveSchedule removes a schedule; the actions that it made go on. Made again
// after a failed connection, it may find that the schedule has gone.
func (c *Client) RemoveSchedule(ctx context.Context, name string) error {
	return c.do(ctx, call{method: "DELETE", path: at("schedules", name)}, nil)
}

// PauseSchedule starts no further run until the schedule is resumed.
func (c *Client) PauseSchedule(ctx context.Context, name string) (schedule wire.Schedule, err error) {
	err = c.do(ctx, call{method: "POST", path: at("schedules", name, "pause")}, &schedule)
	return schedule, err
}

// ResumeSchedule goes on with a paused schedule, at its next time.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (schedule wire.Schedule, err error) {
	err = c.do(ctx, call{method: "POST", path: at("schedules", name, "resume")}, &schedule)
	return schedule, err
}

// RunSchedule starts a run at once, and returns its action. It is not tried again
// after a failed connection: that could start two.
func (c *Client) RunSchedule(ctx context.Context, name string) (created wire.Created, err error) {
	err = c.do(ctx, call{method: "POST", path: at("schedules", name, "run"), once: true}, &created)
	return created, err
}
