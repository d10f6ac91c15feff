package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/jsonclient"
)

// Create creates an action. If the spec has no id, Create generates one, so that a repeated
// request does not create the action twice.
func (c *Client) Create(ctx context.Context, spec wire.NewAction) (wire.Created, error) {
	spec.ID = cmp.Or(spec.ID, rand.Text())
	return ask[wire.Created](ctx, c, call{Method: "POST", Path: at("actions"), Body: spec})
}

// Enqueue enqueues one job. Without a unique key it is not retried after a failed connection:
// that could enqueue the job twice.
func (c *Client) Enqueue(ctx context.Context, job wire.NewJob) (wire.Enqueued, error) {
	return ask[wire.Enqueued](ctx, c, call{Method: "POST", Path: at("jobs"), Body: job, Once: job.Unique == ""})
}

// Seal ends the upload of total jobs, and starts the action.
func (c *Client) Seal(ctx context.Context, id string, total int64) (wire.Action, error) {
	return ask[wire.Action](ctx, c, call{Method: "POST", Path: at("actions", id, "seal"), Body: wire.Seal{Total: total}})
}

// Action returns one action.
func (c *Client) Action(ctx context.Context, id string) (wire.Action, error) {
	return ask[wire.Action](ctx, c, call{Method: "GET", Path: at("actions", id)})
}

// ActionFilter selects actions; the zero value selects the first page of all.
type ActionFilter struct {
	Tenant, Status string
	// After is Next of the previous page.
	After string
	// Limit is the maximum of actions of a page, at most 1,000; 0 is 100.
	Limit int
}

// Actions returns a page of actions in the order of their creation.
func (c *Client) Actions(ctx context.Context, f ActionFilter) (wire.Actions, error) {
	return ask[wire.Actions](ctx, c, call{Method: "GET", Path: at("actions"), Query: f.query()})
}

func (f *ActionFilter) query() url.Values {
	return query("tenant", f.Tenant, "status", f.Status, "after", f.After, "limit", f.Limit)
}

// Pause admits no further job of the action until it is resumed.
func (c *Client) Pause(ctx context.Context, id string) (wire.Action, error) {
	return c.move(ctx, id, "pause")
}

// Resume continues a paused action.
func (c *Client) Resume(ctx context.Context, id string) (wire.Action, error) {
	return c.move(ctx, id, "resume")
}

// Cancel starts no further job of the action, and tells those in flight to end.
func (c *Client) Cancel(ctx context.Context, id string) (wire.Action, error) {
	return c.move(ctx, id, "cancel")
}

func (c *Client) move(ctx context.Context, id, verb string) (wire.Action, error) {
	return ask[wire.Action](ctx, c, call{Method: "POST", Path: at("actions", id, verb)})
}

// Job returns where one job of the action is and, if it has not ended, why it does not run.
func (c *Client) Job(ctx context.Context, id string, index int64) (wire.JobState, error) {
	return c.job(ctx, id, strconv.FormatInt(index, 10))
}

// FirstJob returns the same of the first job that has not ended, by index. It is a refusal with
// wire.CodeNotFound if there is none, or if the action is canceled.
func (c *Client) FirstJob(ctx context.Context, id string) (wire.JobState, error) {
	return c.job(ctx, id, wire.FirstJob)
}

func (c *Client) job(ctx context.Context, id, index string) (wire.JobState, error) {
	return ask[wire.JobState](ctx, c, call{Method: "GET", Path: at("actions", id, "jobs", index)})
}

// Change changes the actions that match, at most 1,000 of them. Next of its answer is the After
// of the call that continues. A repeated call changes nothing twice.
func (c *Client) Change(ctx context.Context, change wire.Change) (wire.Changed, error) {
	return ask[wire.Changed](ctx, c, call{Method: "POST", Path: at("changes"), Body: change})
}

// Streams returns a page of the streams that match, in the order of their creation.
func (c *Client) Streams(ctx context.Context, f ActionFilter) (wire.Actions, error) {
	return ask[wire.Actions](ctx, c, call{Method: "GET", Path: at("streams"), Query: f.query()})
}

// Waits returns a page of the unfinished actions with jobs that wait, and why. Empty tenant: of all. Limit is at most 100; 0 is 20.
func (c *Client) Waits(ctx context.Context, tenant, after string, limit int) (wire.WaitingActions, error) {
	return ask[wire.WaitingActions](ctx, c, call{Method: "GET", Path: at("waits"), Query: query("tenant", tenant, "after", after, "limit", limit)})
}

// Workers returns a page of the job types after one, by name: who runs the jobs of each. Limit is at most 1,000, as is 0.
func (c *Client) Workers(ctx context.Context, after string, limit int) (wire.Workers, error) {
	return ask[wire.Workers](ctx, c, call{Method: "GET", Path: at("workers"), Query: query("after", after, "limit", limit)})
}

// Failures returns a page of the failed jobs of an action, from an index on. Limit is at most
// 1,000; 0 is 100.
func (c *Client) Failures(ctx context.Context, id string, from int64, limit int) (wire.Failures, error) {
	q := query("from", from, "limit", limit)
	return ask[wire.Failures](ctx, c, call{Method: "GET", Path: at("actions", id, "failures"), Query: q})
}

// FailuresCSV writes all failed jobs of an action as CSV with a header. It is not retried,
// since a part may have been written.
func (c *Client) FailuresCSV(ctx context.Context, id string, w io.Writer) error {
	request, err := c.api.Request(ctx, call{Method: "GET", Path: at("actions", id, "failures"), Query: query("format", "csv")}, nil)
	if err != nil {
		return err
	}
	response, err := c.api.Open(request) //nolint:bodyclose // jsonclient.Close closes it.
	if err != nil {
		return err
	}
	defer jsonclient.Close(response)
	_, err = io.Copy(w, response.Body)
	return err
}

// DeadLetterFilter selects dead letters; the zero value selects the first page of all.
type DeadLetterFilter struct {
	wire.FailureFilter
	// Target is the name of a target.
	Action, Tenant, Type, Target string
	// After is Next of the previous page.
	After string
	// Limit is the maximum of jobs of a page, at most 1,000; 0 is 100.
	Limit int
}

// DeadLetters returns a page of the failed jobs of one action or of all. A page
// may be empty and have a Next.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) (wire.DeadLetters, error) {
	q := query("action", f.Action, "tenant", f.Tenant, "type", f.Type, "target", f.Target, "cause", f.Cause, "error", f.Error,
		"since", timeText(f.Since), "until", timeText(f.Until), "after", f.After, "limit", f.Limit)
	return ask[wire.DeadLetters](ctx, c, call{Method: "GET", Path: at("dead-letters"), Query: q})
}

// timeText returns a time as a parameter has it: empty if it is zero.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Replay runs dead letters of a finished action, or of a stream, again, in a new action. It is not retried
// after a failed connection: that could replay them twice.
func (c *Client) Replay(ctx context.Context, replay wire.Replay) (wire.Created, error) {
	return ask[wire.Created](ctx, c, call{Method: "POST", Path: at("dead-letters", "replay"), Body: replay, Once: true})
}

// Lease leases ready jobs. It is not retried after a failed connection: the jobs of the lost
// answer would wait for their deadline.
func (c *Client) Lease(ctx context.Context, request wire.LeaseRequest) ([]wire.Job, error) {
	wait := time.Duration(request.WaitMS) * time.Millisecond
	leases, err := ask[wire.Leases](ctx, c, call{Method: "POST", Path: at("leases"), Body: request, Once: true, Wait: wait})
	return leases.Jobs, err
}

// Acknowledge reports the outcomes of leases, at most 1,000, and returns their verdicts in
// the same order.
func (c *Client) Acknowledge(ctx context.Context, outcomes []wire.Outcome) ([]wire.Verdict, error) {
	verdicts, err := ask[wire.Verdicts](ctx, c, call{Method: "POST", Path: at("leases", "ack"), Body: wire.Acknowledgement{Outcomes: outcomes}})
	return verdicts.Verdicts, err
}

// Extend extends leases to the given time from now; 0 is the server's bulk.lease.
func (c *Client) Extend(ctx context.Context, leases []string, lease time.Duration) ([]wire.Verdict, error) {
	body := wire.Extension{Leases: leases, LeaseMS: lease.Milliseconds()}
	verdicts, err := ask[wire.Verdicts](ctx, c, call{Method: "POST", Path: at("leases", "extend"), Body: body})
	return verdicts.Verdicts, err
}
