package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tokenTable is a queue in PostgreSQL as it is often built first: a table of tokens with a status,
// where the position is how many wait with a lower id.
type tokenTable struct {
	server  *postgresServer
	pool    *pgxpool.Pool
	waiting int
}

// tokenClients is the most connections.
const tokenClients = 300

// The index covers the query for a position: without it PostgreSQL reads the table.
const (
	makeTokens = `CREATE TABLE token (
	id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	user_id    BIGINT NOT NULL,
	access_key TEXT NOT NULL,
	status     TEXT NOT NULL,
	created_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX token_line ON token (status, id)`
	fillTokens   = `INSERT INTO token (user_id, access_key, status) SELECT n, md5(n::text), 'WAITING' FROM generate_series(1, $1::bigint) n`
	enterToken   = `INSERT INTO token (user_id, access_key, status) VALUES ($1, md5($1::bigint::text), 'WAITING') RETURNING id`
	positionOf   = `SELECT count(*) FROM token WHERE status = 'WAITING' AND id <= $1`
	vacuumTokens = `VACUUM (ANALYZE, FREEZE) token`
)

func (e *Environment) startTokens(ctx context.Context) (_ *tokenTable, err error) {
	t := &tokenTable{}
	if t.server, err = startPostgres(ctx, e.folder, fmt.Sprintf("max_connections=%d", tokenClients+10)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.stop())
		}
	}()
	config, err := pgxpool.ParseConfig(fmt.Sprintf("%s pool_max_conns=%d", t.server.url, tokenClients))
	if err != nil {
		return nil, err
	}
	if t.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	for _, command := range []string{makeTokens, vacuumTokens} {
		if _, err := t.pool.Exec(ctx, command, pgx.QueryExecModeSimpleProtocol); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tokenTable) stop() error {
	if t.pool != nil {
		t.pool.Close()
	}
	return t.server.stop()
}

// fillTo adds waiting tokens in one statement, and vacuums the table, so that it is as fast as
// possible.
func (t *tokenTable) fillTo(ctx context.Context, waiting int) error {
	if _, err := t.pool.Exec(ctx, fillTokens, waiting-t.waiting); err != nil {
		return err
	}
	t.waiting = waiting
	_, err := t.pool.Exec(ctx, vacuumTokens, pgx.QueryExecModeSimpleProtocol)
	return err
}

// position asks for the position of a waiting token.
func (t *tokenTable) position(ctx context.Context, connection *pgxpool.Conn) error {
	var position int
	id := 1 + rand.IntN(t.waiting)
	err := connection.QueryRow(ctx, positionOf, id).Scan(&position)
	if err == nil && position != id {
		err = fmt.Errorf("the token %d has the position %d", id, position)
	}
	return err
}

// enter adds a waiting token.
func (t *tokenTable) enter(ctx context.Context, connection *pgxpool.Conn) error {
	var id int64
	return connection.QueryRow(ctx, enterToken, rand.Int64()).Scan(&id)
}

// run calls f on a number of connections for a time, and at least once on each.
func (t *tokenTable) run(ctx context.Context, clients int, during time.Duration, f func(context.Context, *pgxpool.Conn) error) (Latency, error) {
	connections := make([]*pgxpool.Conn, clients)
	for i := range connections {
		connection, err := t.pool.Acquire(ctx)
		if err != nil {
			return Latency{}, err
		}
		defer connection.Release()
		connections[i] = connection
	}
	var (
		wait  sync.WaitGroup
		times = make([][]time.Duration, clients)
		errs  = make([]error, clients)
	)
	began := time.Now()
	for i, connection := range connections {
		wait.Go(func() {
			for first := true; errs[i] == nil && (first || time.Since(began) < during); first = false {
				sent := time.Now()
				errs[i] = f(ctx, connection)
				times[i] = append(times[i], time.Since(sent))
			}
		})
	}
	wait.Wait()
	took := time.Since(began)
	var all []time.Duration
	for _, some := range times {
		all = append(all, some...)
	}
	if err := errors.Join(errs...); err != nil {
		return Latency{}, err
	}
	return latencyOf(all, took)
}
