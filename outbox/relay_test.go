package outbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/outbox"
)

// The promises of the outbox while nothing is killed, on one stack.
func TestOutbox(t *testing.T) {
	s := startStack(t, 1)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *stack)
	}{
		{"a wrong job fails its INSERT, and the error says what is right", testWrongJobs},
		{"the server gets all fields of a job", testAllFields},
		{"rows with the same key become one job", testSameKey},
		{"a refused row does not delay others, and is sent once it is right", testRefusedRows},
		{"a row with a column that the relay does not know is kept", testNewerSchema},
		{"the relay stalls while the server or the database is away, says so once, and goes on", testOutages},
		{"SIGTERM ends a relay without an error", testEnd},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, s)
			s.awaitEmpty(t) // or another relay gets the rows in the next test
		})
	}
}

func testWrongJobs(t *testing.T, s *stack) {
	right := wire.NewJob{
		Tenant: strings.Repeat("é", 256), Type: strings.Repeat("t", 128), Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<20-2) + `"`),
		Class: "high", Key: strings.Repeat("k", 256), Cost: 1_000_000, MaxAttempts: 100, TimeoutMS: 86_400_000, Unique: strings.Repeat("u", 256),
	}
	webhook := &wire.Target{URL: "https://api.example.com/"}
	for name, change := range map[string]func(*wire.NewJob){
		"":                                func(*wire.NewJob) {},
		"tenant: want 1 to 256":           func(j *wire.NewJob) { j.Tenant += "é" },
		"tenant: want 1 to 256 printable": func(j *wire.NewJob) { j.Tenant = "a\x1fb" },
		"tenant: want 1 ":                 func(j *wire.NewJob) { j.Tenant = "" },
		"type: want 1 to 128":             func(j *wire.NewJob) { j.Type += "t" },
		"type: want 1 to 128 of letters":  func(j *wire.NewJob) { j.Type = "a b" },
		"type, target: give one":          func(j *wire.NewJob) { j.Target = webhook },
		"type, target: give one of them":  func(j *wire.NewJob) { j.Type = "" },
		"payload: want at most 1 MiB":     func(j *wire.NewJob) { j.Payload = append(j.Payload, ' ') },
		"invalid input syntax for type":   func(j *wire.NewJob) { j.Payload = json.RawMessage(`{"a"`) },
		"class: want high, normal or low": func(j *wire.NewJob) { j.Class = "urgent" },
		"key: want at most 256":           func(j *wire.NewJob) { j.Key += "k" },
		"key: want at most 256 printable": func(j *wire.NewJob) { j.Key = "a\x7f" },
		"cost: want 1 to 1000000":         func(j *wire.NewJob) { j.Cost++ },
		"max_attempts: want 1 to 100":     func(j *wire.NewJob) { j.MaxAttempts++ },
		"timeout_ms: want 1 to 86400000":  func(j *wire.NewJob) { j.TimeoutMS++ },
		"unique: want 1 to 256 bytes":     func(j *wire.NewJob) { j.Unique += "u" },
		"unique_for_ms: want 0":           func(j *wire.NewJob) { j.UniqueForMS = 1 },
	} {
		job := right
		job.Payload = bytes.Clone(right.Payload)
		change(&job)
		err := outbox.Enqueue(t.Context(), s.pool, job)
		if name == "" && err != nil {
			t.Errorf("a job at the bounds: %v", err)
		}
		if name != "" && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
	var refused *pgconn.PgError
	if err := outbox.Enqueue(t.Context(), s.pool, wire.NewJob{Tenant: "a", Type: "t"}); !errors.As(err, &refused) {
		t.Errorf("without a payload: %v, want an error of the database", err)
	}
}

func testAllFields(t *testing.T, s *stack) {
	got := make(chan wire.NewJob, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var job wire.NewJob
		if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
			t.Error(err)
		}
		got <- job
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	s.relays[0].end(syscall.SIGTERM)
	defer s.relays[0].start()
	relay := s.newRelay(t, server.URL)
	relay.start()

	runAt := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	job := wire.NewJob{
		Tenant: "acme", Target: &wire.Target{Name: "orders", URL: "https://api.example.com/"}, Payload: json.RawMessage(`{"b":1,"a":[1.50]}`),
		Class: "low", Key: "k", Cost: 3, MaxAttempts: 4, TimeoutMS: 5000, KeepResults: true, RunAt: &runAt, Unique: "order 17",
	}
	s.enqueue(t, job)
	sent := <-got
	sent.RunAt = new(sent.RunAt.UTC())
	if !reflect.DeepEqual(sent, job) {
		t.Errorf("the server got %+v, want %+v", sent, job)
	}
	s.awaitEmpty(t)
	relay.end(syscall.SIGTERM)
}

func testSameKey(t *testing.T, s *stack) {
	for range 3 {
		s.enqueue(t, wire.NewJob{Tenant: "same key", Type: "row", Payload: json.RawMessage("1"), Unique: "order 17"})
	}
	s.awaitEmpty(t)
	if n := s.jobs(t, "same key"); n != 1 {
		t.Errorf("the server has %d jobs, want 1", n)
	}
}

func testRefusedRows(t *testing.T, s *stack) {
	s.enqueue(t, wire.NewJob{Tenant: "wrong", Target: &wire.Target{URL: "ftp://example.com/"}, Payload: json.RawMessage("1")})
	s.enqueue(t, wire.NewJob{Tenant: "right", Type: "row", Payload: json.RawMessage("2")})
	s.awaitJob(t, "right")
	until.True(t, "the row has the reason", func() bool {
		var reason string
		err := s.pool.QueryRow(t.Context(), `SELECT error FROM sluice_outbox WHERE tenant = 'wrong' AND due_at > created_at`).Scan(&reason)
		return err == nil && strings.Contains(reason, "want an http or https URL")
	})
	s.exec(t, `UPDATE sluice_outbox SET target = '{"url": "https://example.com/"}'`)
	s.awaitJob(t, "wrong")
}

func testNewerSchema(t *testing.T, s *stack) {
	s.exec(t, `ALTER TABLE sluice_outbox ADD COLUMN colour text`)
	s.enqueue(t, wire.NewJob{Tenant: "acme", Type: "row", Payload: json.RawMessage("1")})
	until.True(t, "the row has the reason", func() bool {
		var reason string
		err := s.pool.QueryRow(t.Context(), `SELECT error FROM sluice_outbox`).Scan(&reason)
		return err == nil && strings.Contains(reason, "colour")
	})
	s.exec(t, `ALTER TABLE sluice_outbox DROP COLUMN colour`)
	s.awaitEmpty(t)
}

func testOutages(t *testing.T, s *stack) {
	stalls, ends := s.logged(t, "the outbox stalls"), s.logged(t, "the outbox goes on")
	for i, away := range []struct {
		name string
		of   *program
	}{{"server", s.server}, {"database", s.database}} {
		away.of.kill()
		if away.of == s.server { // with the other away, nobody can enqueue
			s.enqueue(t, wire.NewJob{Tenant: away.name, Type: "row", Payload: json.RawMessage("1")})
		}
		until.True(t, "the relay stalls", func() bool { return s.logged(t, "the outbox stalls") == stalls+i+1 })
		away.of.start()
		until.True(t, "the relay goes on", func() bool { return s.logged(t, "the outbox goes on") == ends+i+1 })
	}
	s.awaitDatabase(t)
	s.awaitJob(t, "server")
	if n := s.logged(t, "the outbox stalls"); n != stalls+2 {
		t.Errorf("the relay has logged %d stalls, want one for each outage: 2", n-stalls)
	}
}

func testEnd(t *testing.T, s *stack) {
	s.relays[0].end(syscall.SIGTERM)
	if state := s.relays[0].process.ProcessState; !state.Success() {
		t.Errorf("the relay ended with %v", state)
	}
}
