package outbox_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/outbox"
)

// stack is a PostgreSQL with an outbox, a server, and relays between them.
type stack struct {
	database, server *program
	relays           []*program
	url              string // of the database
	addr             string // of the server
	pool             *pgxpool.Pool
	to               *client.Client
}

func startStack(t *testing.T, relays int) *stack {
	t.Helper()
	s := &stack{}
	s.database, s.url, s.pool = startPostgres(t)
	s.addr = ports.Addr(ports.Take(t, 1)[0])
	s.server = newProgram(t, filepath.Join(binaries, "sluice"), "serve", "--data", t.TempDir(), "--http", s.addr, "--kafka", "off")
	s.server.start()
	for range relays {
		relay := s.newRelay(t, "http://"+s.addr)
		relay.start()
		s.relays = append(s.relays, relay)
	}
	var err error
	if s.to, err = client.New("http://"+s.addr, client.WithAttempts(100)); err != nil {
		t.Fatal(err)
	}
	return s
}

// newRelay returns a relay that is not started. It speaks to the database as behind a pooler.
func (s *stack) newRelay(t *testing.T, server string) *program {
	t.Helper()
	return newProgram(t, filepath.Join(binaries, "sluice-outbox"), "--database", s.url+"?default_query_exec_mode=exec", "--server", server)
}

func (s *stack) enqueue(t *testing.T, job wire.NewJob) {
	t.Helper()
	if err := outbox.Enqueue(t.Context(), s.pool, job); err != nil {
		t.Fatal(err)
	}
}

func (s *stack) exec(t *testing.T, query string) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// left returns how many rows the outbox has.
func (s *stack) left(t *testing.T) (rows int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM sluice_outbox`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// awaitDatabase waits until the database answers, on new connections.
func (s *stack) awaitDatabase(t *testing.T) {
	t.Helper()
	until.Succeeds(t, "PostgreSQL answers", func() error {
		s.pool.Reset()
		return s.pool.Ping(t.Context())
	})
}

func (s *stack) awaitEmpty(t *testing.T) {
	t.Helper()
	until.Succeeds(t, "the outbox is empty", func() error {
		if left := s.left(t); left > 0 {
			return fmt.Errorf("%d rows are left", left)
		}
		return nil
	})
}

// jobs returns how many jobs of a tenant the server has accepted; "" is all tenants.
func (s *stack) jobs(t *testing.T, tenant string) (accepted int64) {
	t.Helper()
	for filter := (client.ActionFilter{Tenant: tenant, Limit: 1000}); ; {
		page, err := s.to.Actions(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Actions {
			accepted += page.Actions[i].Received
		}
		if page.Next == nil {
			return accepted
		}
		filter.After = *page.Next
	}
}

func (s *stack) awaitJob(t *testing.T, tenant string) {
	t.Helper()
	until.True(t, "the server has the job of "+tenant, func() bool { return s.jobs(t, tenant) == 1 })
}

// logged returns how many lines with a text the first relay has logged.
func (s *stack) logged(t *testing.T, text string) int {
	t.Helper()
	log, err := os.ReadFile(s.relays[0].log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(log, []byte(text))
}
