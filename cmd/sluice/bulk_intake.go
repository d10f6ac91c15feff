package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
)

// Bounds of an intake.
const (
	// batchRows and batchBytes are the most that one Append takes.
	batchRows  = 1000
	batchBytes = 1 << 20
	// bufferBytes is the most that waits in memory, of all tenants together.
	bufferBytes = 16 << 20
	// flushers is how many tenants are written at one time, so that their
	// commits share an fsync.
	flushers = 16
	// maxTenants is the most tenants of one file. More of them show that the
	// column is not a tenant.
	maxTenants = 100_000
)

// jobTaker is what takes jobs in: the engine in this process, or a server.
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
	// Tenant is the tenant of the last row.
	Tenant() (string, error)
	// Place is where the last row is, such as "line 12".
	Place() string
}

// inputError says what is wrong with the input, and where.
type inputError struct {
	File  string
	Place string // empty: the input as a whole
	Err   error
}

func (e *inputError) Error() string {
	if e.Place == "" {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.File, e.Place, e.Err)
}

var errNoRows = errors.New("it has no rows, so there is nothing to run")

// line names a line of a file.
func line(number int64) string { return fmt.Sprintf("line %d", number) }

func (e *inputError) Unwrap() error { return e.Err }

// ExitCode is that of a command that was asked for something it cannot do.
func (e *inputError) ExitCode() int { return exitUsage }

// intake groups the rows of a file by tenant, and makes one action of each
// tenant. It holds at most bufferBytes of rows and one row more.
type intake struct {
	taker  jobTaker
	file   string
	column string
	// spec is that of every action, but for its tenant, and for what vary changes.
	spec     bulk.Spec
	vary     func(*bulk.Spec)
	groups   map[string]*group
	buffered int
	rows     int64
	// progress is called with the rows that were read, after each thousand.
	progress func(rows int64)
}

// group is what an intake has of one tenant.
type group struct {
	tenant string
	place  string // where the tenant was first seen
	id     string // empty until the action is created
	sent   int64
	// had is how many jobs the action had before: those are not sent again.
	had int64
	// final says that it had ended: then it takes nothing.
	final bool
	rows  [][]byte
	bytes int
}

func newIntake(taker jobTaker, file, column string, spec bulk.Spec) *intake {
	return &intake{
		taker: taker, file: file, column: column, spec: spec, vary: func(*bulk.Spec) {}, groups: map[string]*group{}, progress: func(int64) {},
	}
}

// Read takes all rows in. Nothing runs before Seal.
func (in *intake) Read(ctx context.Context, rows rowSource) error {
	for ctx.Err() == nil {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			if len(in.groups) == 0 {
				return &inputError{File: in.file, Err: errNoRows}
			}
			return in.flush(ctx)
		}
		if err != nil {
			return located(in.file, err)
		}
		tenant, err := rows.Tenant()
		if err != nil {
			return &inputError{in.file, rows.Place(), err}
		}
		if err := in.add(ctx, tenant, row, rows); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (in *intake) add(ctx context.Context, tenant string, row []byte, rows rowSource) error {
	g := in.groups[tenant]
	if g == nil {
		if len(in.groups) == maxTenants {
			return &inputError{in.file, rows.Place(), fmt.Errorf("more than %d different values of %q: that column is not a tenant", maxTenants, in.column)}
		}
		g = &group{tenant: tenant, place: rows.Place()}
		in.groups[tenant] = g
	}
	g.rows = append(g.rows, slices.Clone(row))
	g.bytes += len(row)
	if in.rows++; in.rows%batchRows == 0 {
		in.progress(in.rows)
	}
	in.buffered += len(row)
	switch {
	case in.buffered >= bufferBytes:
		return in.flush(ctx)
	case len(g.rows) == batchRows || g.bytes >= batchBytes:
		in.buffered -= g.bytes
		return in.send(ctx, g)
	}
	return nil
}

// flush sends what every tenant has in memory.
func (in *intake) flush(ctx context.Context) error {
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

// send appends what a tenant has in memory to its action, which the first call
// creates.
func (in *intake) send(ctx context.Context, g *group) error {
	if g.id == "" {
		spec := in.spec
		spec.Tenant = g.tenant
		in.vary(&spec)
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

// refused explains why an action was not created: by the flag, or by the line
// that names the tenant.
func (in *intake) refused(g *group, err error) error {
	var wrong *bulk.SpecError
	switch {
	case !errors.As(err, &wrong):
		return fmt.Errorf("create the action of tenant %q: %w", g.tenant, err)
	case wrong.Field == "tenant":
		return &inputError{in.file, g.place, fmt.Errorf("%q is not a tenant: %s", clip(g.tenant, 40), wrong.Why)}
	default:
		return flagError(wrong)
	}
}

// Rows counts the rows that were read.
func (in *intake) Rows() int64 { return in.rows }

// Seal lets all actions run. It returns their ids, in the order of tenants.
func (in *intake) Seal(ctx context.Context) ([]string, error) {
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

// Abandon cancels what was created, so that an input that turned out to be wrong
// leaves nothing open.
func (in *intake) Abandon(ctx context.Context) error {
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

// field reads the tenant from a row: a string, or a number as it is written.
func field(row []byte, column string) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(row, &fields); err != nil {
		return "", errors.New("want a JSON object")
	}
	raw, ok := fields[column]
	if !ok {
		return "", noColumn("field", column, slices.Sorted(maps.Keys(fields)))
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
		return "", fmt.Errorf("the tenant, %q, is %s: want a string or a number", column, clip(string(raw), 40))
	default:
		return string(raw), nil
	}
}

// noColumn names the columns that there are.
func noColumn(noun, column string, have []string) error {
	return fmt.Errorf("there is no %s %q: it has %s", noun, column, strings.Join(have, ", "))
}
