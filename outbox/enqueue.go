package outbox

import (
	"context"
	"database/sql"
	_ "embed" // for Schema
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// Schema is the SQL that creates the outbox, the table sluice_outbox, in the first schema of the
// search path. It has no effect where the table exists.
//
//go:embed schema.sql
var Schema string

// Tx is a transaction of pgx: a pgx.Tx is one.
type Tx interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// SQLTx is a transaction of database/sql: an *sql.Tx is one.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, arguments ...any) (sql.Result, error)
}

const insertRow = `INSERT INTO sluice_outbox
(tenant, type, target, payload, class, key, cost, max_attempts, timeout_ms, keep_results, run_at, "unique")
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, COALESCE(NULLIF($12, ''), gen_random_uuid()::text))`

// Enqueue enqueues a job when the transaction commits. Without Unique the job gets a key of its
// own. UniqueForMS is not supported. A wrong field is an error of the database that names a
// constraint of [Schema], and ends the transaction.
func Enqueue(ctx context.Context, tx Tx, job wire.NewJob) error {
	values, err := rowOf(&job)
	if err == nil {
		_, err = tx.Exec(ctx, insertRow, values...)
	}
	return err
}

// EnqueueSQL does the same in a transaction of database/sql.
func EnqueueSQL(ctx context.Context, tx SQLTx, job wire.NewJob) error {
	values, err := rowOf(&job)
	if err == nil {
		_, err = tx.ExecContext(ctx, insertRow, values...)
	}
	return err
}

// rowOf returns the arguments of insertRow.
func rowOf(job *wire.NewJob) ([]any, error) {
	if job.UniqueForMS != 0 {
		return nil, errors.New("outbox: unique_for_ms: want 0, since a window could end before the relay repeats a job")
	}
	var target any
	if job.Target != nil {
		text, err := json.Marshal(job.Target)
		if err != nil {
			return nil, err
		}
		target = string(text)
	}
	return []any{
		job.Tenant, job.Type, target, string(job.Payload), job.Class, job.Key, job.Cost, job.MaxAttempts,
		job.TimeoutMS, job.KeepResults, job.RunAt, job.Unique,
	}, nil
}
