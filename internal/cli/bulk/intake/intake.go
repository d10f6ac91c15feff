package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Bounds of an intake.
const (
	// BatchRows and batchBytes bound one Append.
	BatchRows  = 1000
	batchBytes = 1 << 20
	// bufferBytes bounds the rows that wait in memory, of all tenants together.
	bufferBytes = 16 << 20
	// flushers is how many tenants are written concurrently, so that their commits share an fsync.
	flushers = 16
	// maxTenants bounds the tenants of one file. A file with more has the wrong column for the
	// tenant.
	maxTenants = 100_000
)

// jobTaker stores jobs: the engine in this process, or a server.
type jobTaker interface {
	Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error)
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (bulk.Action, error)
	Cancel(ctx context.Context, id string) (bulk.Action, error)
}

// rowSource is a stream of jobs, each one JSON object.
type rowSource interface {
	// Next returns the next row, valid until the next call; io.EOF at the end.
	Next() ([]byte, error)
	// Tenant returns the tenant of the last row.
	Tenant() (string, error)
	// Place returns where the last row is, such as "line 12".
	Place() string
}

var ErrNoRows = errors.New("it has no rows, so there is nothing to run")

// Intake groups the rows of a file by tenant and creates an action for each tenant. It holds at
// most bufferBytes of rows and one row more.
type Intake struct {
	taker  jobTaker
	file   string
	column string
	// spec is the spec of every action, without the tenant and the fields that vary changes.
	spec     bulk.Spec
	Vary     func(*bulk.Spec)
	groups   map[string]*group
	buffered int
	rows     int64
	// Progress is called with the number of rows read, after each thousand.
	Progress func(rows int64)
}

// group is the state of an intake for one tenant.
type group struct {
	tenant string
	place  string // where the tenant was first read
	id     string // empty until the action is created
	sent   int64
	// had is how many jobs the action had before; they are not sent again.
	had int64
	// final means that the action had already ended: it takes no jobs.
	final bool
	rows  [][]byte
	bytes int
}

func New(taker jobTaker, file, column string, spec bulk.Spec) *Intake {
	return &Intake{
		taker: taker, file: file, column: column, spec: spec, Vary: func(*bulk.Spec) {}, groups: map[string]*group{}, Progress: func(int64) {},
	}
}

// Read stores all rows. No job runs before Seal.
func (in *Intake) Read(ctx context.Context, rows rowSource) error {
	for ctx.Err() == nil {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			if len(in.groups) == 0 {
				return &input.Error{File: in.file, Err: ErrNoRows}
			}
			return in.flush(ctx)
		}
		if reading := (*topicError)(nil); errors.As(err, &reading) {
			return err // the error names the topic and the partition already
		}
		if err != nil {
			return input.Located(in.file, err)
		}
		tenant, err := rows.Tenant()
		if err != nil {
			return input.Wrong(in.file, rows.Place(), err)
		}
		if err := in.add(ctx, tenant, row, rows); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (in *Intake) add(ctx context.Context, tenant string, row []byte, rows rowSource) error {
	g := in.groups[tenant]
	if g == nil {
		if len(in.groups) == maxTenants {
			return input.Wrong(in.file, rows.Place(), fmt.Errorf("more than %d different values of %q: that column is not a tenant", maxTenants, in.column))
		}
		g = &group{tenant: tenant, place: rows.Place()}
		in.groups[tenant] = g
	}
	g.rows = append(g.rows, slices.Clone(row))
	g.bytes += len(row)
	if in.rows++; in.rows%BatchRows == 0 {
		in.Progress(in.rows)
	}
	in.buffered += len(row)
	switch {
	case in.buffered >= bufferBytes:
		return in.flush(ctx)
	case len(g.rows) == BatchRows || g.bytes >= batchBytes:
		in.buffered -= g.bytes
		return in.send(ctx, g)
	}
	return nil
}

// flush sends the buffered rows of every tenant.
func (in *Intake) flush(ctx context.Context) error {
	senders, ctx := errgroup.WithContext(ctx)
	senders.SetLimit(flushers)
	for _, g := range in.groups {
		if len(g.rows) > 0 {
			senders.Go(func() error { return in.send(ctx, g) })
		}
	}
	in.buffered = 0
	return senders.Wait()
}

// send appends a tenant's buffered rows to its action, which the first call creates.
func (in *Intake) send(ctx context.Context, g *group) error {
	if g.id == "" {
		spec := in.spec
		spec.Tenant = g.tenant
		in.Vary(&spec)
		action, _, err := in.taker.Create(ctx, spec)
		if err != nil {
			return in.refused(g, err)
		}
		g.id, g.had, g.final = action.ID, action.Received, action.Status.Final()
	}
	if next := g.sent + int64(len(g.rows)); next <= g.had || g.final {
		g.sent, g.rows, g.bytes = next, nil, 0
		return nil
	}
	received, err := in.taker.Append(ctx, g.id, g.sent, g.rows)
	if err != nil {
		return fmt.Errorf("take in the jobs of tenant %q: %w", g.tenant, err)
	}
	g.sent += int64(len(g.rows))
	if received < g.sent {
		return fmt.Errorf("tenant %q: %d jobs were sent, %d received", g.tenant, g.sent, received)
	}
	g.rows, g.bytes = nil, 0
	return nil
}

// refused explains why an action was not created. It names the flag, or the line with the tenant.
func (in *Intake) refused(g *group, err error) error {
	var wrong *bulk.SpecError
	switch {
	case !errors.As(err, &wrong):
		return fmt.Errorf("create the action of tenant %q: %w", g.tenant, err)
	case wrong.Field == "tenant":
		return input.Wrong(in.file, g.place, fmt.Errorf("%q is not a tenant: %s", term.Clip(g.tenant, 40), wrong.Why))
	default:
		return FlagError(wrong)
	}
}

// Rows counts the rows that were read.
func (in *Intake) Rows() int64 { return in.rows }

// Seal seals all actions, so that they run. It returns their ids, in the order of tenants.
func (in *Intake) Seal(ctx context.Context) ([]string, error) {
	tenants := slices.Sorted(maps.Keys(in.groups))
	ids := make([]string, len(tenants))
	sealers, ctx := errgroup.WithContext(ctx)
	sealers.SetLimit(flushers)
	for i, tenant := range tenants {
		g := in.groups[tenant]
		ids[i] = g.id
		if g.final {
			continue
		}
		sealers.Go(func() error {
			if _, err := in.taker.Seal(ctx, g.id, g.sent); err != nil {
				return fmt.Errorf("seal the action of tenant %q: %w", tenant, err)
			}
			return nil
		})
	}
	return ids, sealers.Wait()
}

// Abandon cancels the created actions, so that an input with an error leaves no open action.
func (in *Intake) Abandon(ctx context.Context) error {
	cancelers, ctx := errgroup.WithContext(ctx)
	cancelers.SetLimit(flushers)
	for _, g := range in.groups {
		if g.id != "" {
			cancelers.Go(func() error {
				_, err := in.taker.Cancel(ctx, g.id)
				return err
			})
		}
	}
	return cancelers.Wait()
}

// field reads the tenant from a row: a string, or a number as written.
func field(row []byte, column string) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(row, &fields); err != nil {
		return "", errors.New("want a JSON object")
	}
	raw, ok := fields[column]
	if !ok {
		return "", input.NoColumn("field", column, slices.Sorted(maps.Keys(fields)))
	}
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", err
		}
		if s == "" {
			return "", fmt.Errorf("the tenant is empty: %q needs a value", column)
		}
		return s, nil
	case '{', '[', 't', 'f', 'n':
		return "", fmt.Errorf("the tenant, %q, is %s: want a string or a number", column, term.Clip(string(raw), 40))
	default:
		return string(raw), nil
	}
}

// flagOf names the flag that fills a field of a spec.
var flagOf = map[string]string{
	"type": "--type", "target": "--url", "target.url": "--url", "target.name": "--target", "class": "--class", "key": "--key",
	"aggregate": "--aggregate", "max_attempts": "--max-attempts", "timeout_ms": "--timeout",
	"fail_above": "--fail-above", "id": "--id", "run_at": "--run-at", "events": "--events",
}

// FlagError says which flag made a field of a spec wrong.
func FlagError(wrong *bulk.SpecError) error {
	name, ok := flagOf[wrong.Field]
	if !ok {
		name = wrong.Field
	}
	return exit.Usage("%s: %s", name, wrong.Why)
}
