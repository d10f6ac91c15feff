package client

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// Create creates an action. If the spec has no id, one is made here, so that the
// request can be made again without creating the action twice.
func (c *Client) Create(ctx context.Context, spec wire.NewAction) (created wire.Created, err error) {
	if spec.ID == "" {
		spec.ID = rand.Text()
	}
	err = c.do(ctx, call{method: "POST", path: at("actions"), body: spec}, &created)
	return created, err
}

// Seal says that all jobs were sent, and starts the action.
func (c *Client) Seal(ctx context.Context, id string, total int64) (action wire.Action, err error) {
	err = c.do(ctx, call{method: "POST", path: at("actions", id, "seal"), body: wire.Seal{Total: total}}, &action)
	return action, err
}

// Action returns one action.
func (c *Client) Action(ctx context.Context, id string) (action wire.Action, err error) {
	err = c.do(ctx, call{method: "GET", path: at("actions", id)}, &action)
	return action, err
}

// ActionFilter selects actions; the zero value selects the first page of all.
type ActionFilter struct {
	Tenant, Status string
	// After is the page before's Next.
	After string
	// Limit is the most actions of a page, at most 1,000; 0 is 100.
	Limit int
}

// Actions returns a page of actions in the order of their creation.
func (c *Client) Actions(ctx context.Context, f ActionFilter) (page wire.Actions, err error) {
	q := query("tenant", f.Tenant, "status", f.Status, "after", f.After, "limit", f.Limit)
	err = c.do(ctx, call{method: "GET", path: at("actions"), query: q}, &page)
	return page, err
}

// Pause admits no further job of the action until it is resumed.
func (c *Client) Pause(ctx context.Context, id string) (wire.Action, error) {
	return c.move(ctx, id, "pause")
}

// Resume goes on with a paused action.
func (c *Client) Resume(ctx context.Context, id string) (wire.Action, error) {
	return c.move(ctx, id, "resume")
}

// Cancel starts no further job of the action; jobs in flight may finish.
func (c *Client) Cancel(ctx context.Context, id string) (wire.Action, error) {
	return c.move(ctx, id, "cancel")
}

func (c *Client) move(ctx context.Context, id, verb string) (action wire.Action, err error) {
	err = c.do(ctx, call{method: "POST", path: at("actions", id, verb)}, &action)
	return action, err
}

// Failures returns a page of the failed jobs of an action, with an index of at
// least from. Limit is at most 1,000; 0 is 100.
func (c *Client) Failures(ctx context.Context, id string, from int64, limit int) (page wire.Failures, err error) {
	q := query("from", from, "limit", limit)
	err = c.do(ctx, call{method: "GET", path: at("actions", id, "failures"), query: q}, &page)
	return page, err
}

// FailuresCSV writes all failed jobs of an action as CSV with a header. It is
// not tried again, since a part may have been written.
func (c *Client) FailuresCSV(ctx context.Context, id string, w io.Writer) error {
	request, err := c.request(ctx, call{method: "GET", path: at("actions", id, "failures"), query: query("format", "csv")}, nil)
	if err != nil {
		return err
	}
	response, err := c.open(request)
	if err != nil {
		return err
	}
	defer closeBody(response)
	_, err = io.Copy(w, response.Body)
	return err
}

// DeadLetterFilter selects dead letters; the zero value selects the first page
// of all.
type DeadLetterFilter struct {
	Action, Tenant string
	// After is the page before's Next.
	After string
	// Limit is the most jobs of a page, at most 1,000; 0 is 100.
	Limit int
}

// DeadLetters returns a page of the failed jobs of one action or of all. A page
// may be empty and have a Next.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) (page wire.DeadLetters, err error) {
	q := query("action", f.Action, "tenant", f.Tenant, "after", f.After, "limit", f.Limit)
	err = c.do(ctx, call{method: "GET", path: at("dead-letters"), query: q}, &page)
	return page, err
}

// Replay runs the dead letters of a finished action again, in a new action. It
// is not tried again after a failed connection: it could replay them twice.
func (c *Client) Replay(ctx context.Context, id string) (created wire.Created, err error) {
	err = c.do(ctx, call{method: "POST", path: at("dead-letters", "replay"), body: wire.Replay{Action: id}, once: true}, &created)
	return created, err
}

// Lease takes ready jobs. It is not tried again after a failed connection: jobs
// that were leased then would wait for their deadline.
func (c *Client) Lease(ctx context.Context, request wire.LeaseRequest) (jobs []wire.Job, err error) {
	var leases wire.Leases
	wait := time.Duration(request.WaitMS) * time.Millisecond
	err = c.do(ctx, call{method: "POST", path: at("leases"), body: request, once: true, wait: wait}, &leases)
	return leases.Jobs, err
}

// Acknowledge reports what became of leases, at most 1,000, and returns a
// verdict for each in their order.
func (c *Client) Acknowledge(ctx context.Context, outcomes []wire.Outcome) ([]wire.Verdict, error) {
	var verdicts wire.Verdicts
	err := c.do(ctx, call{method: "POST", path: at("leases", "ack"), body: wire.Acknowledgement{Outcomes: outcomes}}, &verdicts)
	return verdicts.Verdicts, err
}

// Extend takes more time, from now, for leases.
func (c *Client) Extend(ctx context.Context, leases []string, lease time.Duration) ([]wire.Verdict, error) {
	var verdicts wire.Verdicts
	body := wire.Extension{Leases: leases, LeaseMS: lease.Milliseconds()}
	err := c.do(ctx, call{method: "POST", path: at("leases", "extend"), body: body}, &verdicts)
	return verdicts.Verdicts, err
}
