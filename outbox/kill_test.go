package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/outbox"
)

// kills is how often the test kills one of two relays, the server and PostgreSQL, in turn: 21 times
// a relay or the server.
const kills = 28

// ledger has what was written to the outbox, and what the worker got.
type ledger struct {
	pool *pgxpool.Pool
	sql  *sql.DB

	mu        sync.Mutex
	next      int
	committed map[int]bool
	ids       map[int]string // the job of each row that the worker has seen
	doubled   []string
}

// write enqueues jobs in transactions of 1 to 100, of which half are rolled back, until
// there are n more.
func (l *ledger) write(ctx context.Context, n int) error {
	for done := 0; done < n; {
		size, commit := 1+rand.N(min(100, n-done)), rand.N(2) == 0
		done += size
		l.mu.Lock()
		first := l.next
		l.next += size
		l.mu.Unlock()
		write := l.writePgx
		if first%2 == 0 {
			write = l.writeSQL
		}
		if err := write(ctx, first, size, commit); err != nil {
			return err
		}
		l.mu.Lock()
		for i := range size {
			l.committed[first+i] = commit
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *ledger) writePgx(ctx context.Context, first, size int, commit bool) error {
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for i := range size {
		if err := outbox.Enqueue(ctx, tx, job(first+i)); err != nil {
			return err
		}
	}
	if commit {
		return tx.Commit(ctx)
	}
	return nil
}

func (l *ledger) writeSQL(ctx context.Context, first, size int, commit bool) error {
	tx, err := l.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for i := range size {
		if err := outbox.EnqueueSQL(ctx, tx, job(first+i)); err != nil {
			return err
		}
	}
	if commit {
		return tx.Commit()
	}
	return nil
}

func job(row int) wire.NewJob {
	return wire.NewJob{Tenant: fmt.Sprint("tenant ", row%5), Type: "row", Payload: json.RawMessage(fmt.Sprint(row))}
}

// work is the worker's handler.
func (l *ledger) work(_ context.Context, job *bulk.Job) ([]byte, error) {
	var row int
	if err := json.Unmarshal(job.Payload, &row); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.ids[row]; other != "" && other != job.ID() {
		l.doubled = append(l.doubled, fmt.Sprintf("row %d is %s and %s", row, other, job.ID()))
	}
	l.ids[row] = job.ID()
	return nil, nil
}

// Two relays, the server and PostgreSQL are killed while transactions, half of them rolled back, enqueue jobs.
// Each committed row becomes one job, and no other row does.
func TestOutboxOverKills(t *testing.T) {
	rows := 110 // of each of two writers between two kills: 6,160 in all
	if os.Getenv("SLUICE_LONG") != "" {
		rows = 1_786 // 100,016
	}
	s := startStack(t, 2)
	l := &ledger{pool: s.pool, sql: stdlib.OpenDBFromPool(s.pool), committed: map[int]bool{}, ids: map[int]string{}}
	l.startWorker(t, s.to)

	for kill := range kills {
		var writers sync.WaitGroup
		var written atomic.Int32
		for range 2 {
			writers.Go(func() {
				if err := l.write(t.Context(), rows); err != nil {
					t.Error(err)
				}
				written.Add(1)
			})
		}
		// All may be rolled back, or sent before this looks.
		until.True(t, "the outbox has rows", func() bool { return written.Load() == 2 || s.left(t) > 0 })
		<-time.After(rand.N(50 * time.Millisecond))
		victim := append(s.relays, s.server, s.database)[kill%4]
		if victim == s.database { // a commit without an answer could be either
			writers.Wait()
		}
		victim.kill()
		victim.start()
		s.awaitDatabase(t)
		writers.Wait()
	}
	l.check(t, s)
}

// startWorker starts a worker of the server.
func (l *ledger) startWorker(t *testing.T, to *client.Client) {
	t.Helper()
	mux := bulk.NewMux()
	mux.HandleFunc("row", l.work)
	worker := to.NewWorker(mux, client.WorkerOptions{Concurrency: 64, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// check waits until the outbox is empty and all jobs are done, and compares the worker's rows and
// the server's counts with what was committed.
func (l *ledger) check(t *testing.T, s *stack) {
	t.Helper()
	s.awaitEmpty(t)
	want := 0
	for _, committed := range l.committed {
		if committed {
			want++
		}
	}
	until.Succeeds(t, "the worker has got all committed rows", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if got := len(l.ids); got < want {
			return fmt.Errorf("it has %d of %d", got, want)
		}
		return nil
	})
	accepted := s.jobs(t, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d of %d rows were committed, the server accepted %d", want, len(l.committed), accepted)
	if accepted != int64(want) {
		t.Errorf("the server accepted %d jobs, want %d: one for each committed row", accepted, want)
	}
	for row := range l.ids {
		if !l.committed[row] {
			t.Errorf("the worker has row %d, which was rolled back", row)
		}
	}
	for _, doubled := range l.doubled {
		t.Error(doubled)
	}
}
