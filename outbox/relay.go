package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/retry"
)

const (
	// Concurrency is how many rows a relay sends at a time. The client's HTTP transport should
	// keep as many idle connections.
	Concurrency = 64
	// batchRows bounds the rows of one transaction of a relay.
	batchRows = 1000
	// sendFor bounds how long a relay connects to the database and sends the rows of one
	// transaction, and batchFor how long all of it takes.
	sendFor, batchFor = 30 * time.Second, time.Minute
	// maxReason bounds the bytes of a row's error.
	maxReason = 1000
)

// backoff is how long a relay pauses after an error of the server or of the database.
var backoff = retry.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// Relay sends the rows of an outbox to a server. Its fields are not changed once it runs.
type Relay struct {
	// Pool is of the database that has the outbox. A relay uses one connection at a time.
	Pool *pgxpool.Pool
	// Client is of the server. The relay repeats what fails: few attempts are enough.
	Client *client.Client
	// Every is the time between two looks at an outbox without rows: the most that a row waits
	// for one that has nothing else to do. Default 100 ms.
	Every time.Duration
	// Logger gets a line when the relay stalls and when it goes on, and one for each row that the
	// server refuses. Default slog.Default().
	Logger *slog.Logger
}

// Run sends rows until ctx ends. While the server or the database is away, it tries again, at least
// every 5 seconds.
func (r Relay) Run(ctx context.Context) {
	if r.Every <= 0 {
		r.Every = 100 * time.Millisecond
	}
	if r.Logger == nil {
		r.Logger = slog.Default()
	}
	var failed int
	var since time.Time
	for ctx.Err() == nil {
		var pause time.Duration
		some, err := r.batch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 1 {
				since = time.Now()
				r.Logger.Warn("the outbox stalls", "error", err)
			}
			pause = backoff.Delay(failed, 0)
		case failed > 0:
			r.Logger.Info("the outbox goes on", "stalled", time.Since(since))
			failed = 0
		case !some:
			pause = r.Every
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// limitTx frees the rows of a relay that has vanished: PostgreSQL ends its transaction. It is longer
// than a relay needs.
const limitTx = `SELECT set_config('idle_in_transaction_session_timeout', '90s', true), set_config('tcp_user_timeout', '90s', true)`

// batch sends the rows of one transaction, and reports whether there were any. Accepted rows are
// deleted also if others were not sent, or ctx ends.
func (r Relay) batch(ctx context.Context) (some bool, err error) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchFor)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, sendFor)
	defer cancel()
	tx, err := r.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	defer func() { _ = tx.Rollback(within) }() // without effect after Commit
	if _, err := tx.Exec(within, limitTx); err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	sent := &sending{relay: r}
	err = sent.all(ctx, within, tx)
	if done := sent.record(within, tx); done != nil {
		err = errors.Join(err, fmt.Errorf("database: %w", done))
	}
	return sent.rows > 0, err
}

// sending is what became of the rows of a batch.
type sending struct {
	relay Relay
	rows  int

	mu       sync.Mutex
	accepted []int64
	refused  []int64
	reasons  []string // of the refused
}

// lockRows locks rows that nobody sends.
const lockRows = `SELECT id, row_to_json(o) FROM sluice_outbox o WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED`

// all sends rows until there are no more, ctx ends, or one was neither accepted nor refused. It
// reads rows as it sends them.
func (s *sending) all(ctx, within context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(within, lockRows, batchRows)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer rows.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(Concurrency)
	for ctx.Err() == nil && rows.Next() {
		var id int64
		var text []byte
		if err := rows.Scan(&id, &text); err != nil {
			return errors.Join(fmt.Errorf("database: %w", err), group.Wait())
		}
		s.rows++
		group.Go(func() error { return s.one(ctx, id, text) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return nil
}

// one sends one row.
func (s *sending) one(ctx context.Context, id int64, text []byte) error {
	job, err := decode(text)
	if err == nil {
		_, err = s.relay.Client.Enqueue(ctx, job)
		if err != nil && !refuses(err) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.accepted = append(s.accepted, id)
		return nil
	}
	s.refused, s.reasons = append(s.refused, id), append(s.reasons, reason(err))
	s.relay.Logger.Warn("the server refuses a row of the outbox", "id", id, "tenant", job.Tenant, "error", err)
	return nil
}

// decode returns the job of a row. A column that it does not know is an error: this relay is older
// than the table.
func decode(text []byte) (wire.NewJob, error) {
	var row struct {
		wire.NewJob
		ID        int64  `json:"id"`
		CreatedAt string `json:"created_at"`
		DueAt     string `json:"due_at"`
		Error     string `json:"error"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&row)
	return row.NewJob, err
}

// refuses reports whether an error is about the row: another one may be accepted.
func refuses(err error) bool {
	return client.IsCode(err, wire.CodeInvalid) || client.IsCode(err, wire.CodeForbidden) ||
		client.IsCode(err, wire.CodeNotFound) || client.IsCode(err, wire.CodeTooLarge)
}

// reason returns the text of an error as PostgreSQL takes it.
func reason(err error) string {
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

const (
	deleteRows = `DELETE FROM sluice_outbox WHERE id = ANY($1)`
	// A refused row is sent again when it is twice as old, within 1 s to 5 min.
	postponeRows = `UPDATE sluice_outbox o SET error = r.error,
due_at = clock_timestamp() + least('5 min', greatest('1 s', clock_timestamp() - created_at))
FROM unnest($1::bigint[], $2::text[]) r (id, error) WHERE o.id = r.id`
)

// record deletes the accepted rows and postpones the refused ones.
func (s *sending) record(ctx context.Context, tx pgx.Tx) error {
	if len(s.accepted) > 0 {
		if _, err := tx.Exec(ctx, deleteRows, s.accepted); err != nil {
			return err
		}
	}
	if len(s.refused) > 0 {
		if _, err := tx.Exec(ctx, postponeRows, s.refused, s.reasons); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
