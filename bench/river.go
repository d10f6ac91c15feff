package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverConnections is the size of the pool.
const riverConnections = 20

// riverSettings are the settings that decide how fast river works.
type riverSettings struct {
	workers                  int
	fetchCooldown, fetchPoll time.Duration
}

var (
	// riverDefault has river's defaults, and the number of workers of its documentation.
	riverDefault = riverSettings{workers: 100}
	// riverBench has the settings of the command "river bench".
	riverBench = riverSettings{workers: 2000, fetchCooldown: 2 * time.Millisecond, fetchPoll: 20 * time.Millisecond}
)

// riverArgs is a job's payload, unchanged.
type riverArgs struct{ json.RawMessage }

func (riverArgs) Kind() string { return jobType }

// riverQueue is river on a PostgreSQL that several queues use one after another.
type riverQueue struct {
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	limiter *limiter
	started bool
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	limiter *limiter
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	wait, err := w.limiter.start(job.Args.RawMessage, time.Now())
	if err != nil {
		return err
	}
	if wait > 0 {
		return river.JobSnooze(wait)
	}
	return nil
}

func openRiver(ctx context.Context, postgres *postgresServer, settings riverSettings, workload Workload) (_ *riverQueue, err error) {
	config, err := pgxpool.ParseConfig(postgres.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = riverConnections
	q := &riverQueue{limiter: newLimiter(workload)}
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			q.pool.Close()
		}
	}()
	driver := riverpgxv5.New(q.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if err := q.reset(ctx); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{limiter: q.limiter})
	q.client, err = river.NewClient(driver, &river.Config{
		Logger: quiet, Workers: workers,
		FetchCooldown: settings.fetchCooldown, FetchPollInterval: settings.fetchPoll,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: settings.workers}},
	})
	return q, err
}

// reset empties the tables, as river's own benchmark does, and writes the dirty pages of earlier
// measures, so that they do not slow this one.
func (q *riverQueue) reset(ctx context.Context) error {
	for _, statement := range []string{"TRUNCATE river_job, river_leader, river_queue", "VACUUM FULL river_job", "CHECKPOINT"} {
		if _, err := q.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Enqueue copies the batch into the table, which is river's fastest way.
func (q *riverQueue) Enqueue(ctx context.Context, _ int, payloads [][]byte) error {
	params := make([]river.InsertManyParams, len(payloads))
	for i, p := range payloads {
		params[i].Args = riverArgs{p}
	}
	_, err := q.client.InsertManyFast(ctx, params)
	return err
}

func (q *riverQueue) EnqueueOne(ctx context.Context, payload []byte) error {
	_, err := q.client.Insert(ctx, riverArgs{payload}, nil)
	return err
}

func (q *riverQueue) Waiting(ctx context.Context) (int, error) { return q.count(ctx, "available") }

func (q *riverQueue) count(ctx context.Context, state string) (n int, err error) {
	err = q.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = $1::river_job_state", state).Scan(&n)
	return n, err
}

// Work counts the events of river's completer, as its own benchmark does: they come once a job is
// recorded as completed.
func (q *riverQueue) Work(ctx context.Context, jobs int) (worked Worked, err error) {
	events, cancel := q.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: jobs + 1, // an event for a full channel is dropped
		Kinds:    []river.EventKind{river.EventKindJobCompleted, river.EventKindJobCancelled, river.EventKindJobFailed},
	})
	defer cancel()
	if err := q.client.Start(ctx); err != nil {
		return worked, err
	}
	q.started = true
	for range jobs {
		select {
		case event := <-events:
			if event.Kind != river.EventKindJobCompleted {
				return worked, fmt.Errorf("river: %s: %v", event.Kind, event.Job.Errors)
			}
		case <-ctx.Done():
			return worked, ctx.Err()
		}
	}
	worked.Throttled = q.limiter.throttled.Load()
	completed, err := q.count(ctx, "completed")
	return worked, errors.Join(err, checkDone(completed, jobs))
}

func (q *riverQueue) Close() error {
	defer q.pool.Close()
	if !q.started {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return q.client.StopAndCancel(ctx)
}
