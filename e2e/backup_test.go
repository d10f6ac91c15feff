package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// sluice runs a command that must succeed.
func sluice(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// backupAmple is what a server has of the other parts: jobs that wait, visitors, and delayed
// records that are not due.
type backupAmple struct {
	action  string
	tickets []string
	delayed string
}

func newBackupAmple(s *server) *backupAmple {
	s.t.Helper()
	a := &backupAmple{}
	var made action
	s.call("POST", "/v1/actions", `{"tenant":"t","type":"nobody-runs-it"}`, http.StatusCreated, &made)
	a.action = made.ID
	s.upload(a.action, ndjson, strings.Repeat(`{"n":1}`+"\n", 500), 0)
	s.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`, http.StatusCreated, nil)
	for range 30 {
		a.tickets = append(a.tickets, s.enter("shop", "", http.StatusCreated).Ticket)
	}
	s.newTopic("later", 1, "sluice.delay.enable", "true")
	producer := s.connect()
	for n := range 20 {
		record := &kgo.Record{Topic: "later", Value: fmt.Append(nil, n), Headers: []kgo.RecordHeader{{Key: "sluice-delay", Value: []byte("1h")}}}
		if err := producer.ProduceSync(s.t.Context(), record).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	a.delayed = a.waiting(s)
	return a
}

// waiting returns the delayed records, as the API shows them.
func (a *backupAmple) waiting(s *server) string {
	s.t.Helper()
	answer, err := s.do("GET", "/v1/topics/later/delayed", "", nil)
	if err != nil || answer.status != http.StatusOK {
		s.t.Fatalf("delayed records: %d %s %v", answer.status, answer.body, err)
	}
	return string(answer.body)
}

func (a *backupAmple) check(s *server) {
	s.t.Helper()
	if got := s.action(a.action); got.Received != 500 {
		s.t.Errorf("the restored action has %d jobs, want 500", got.Received)
	}
	for n, ticket := range a.tickets {
		if v := s.ask("shop", ticket); v.ID != int64(n+1) {
			s.t.Errorf("visitor %d of the restored room is %d, %s", n+1, v.ID, v.Status)
		}
	}
	if got := a.waiting(s); got != a.delayed {
		s.t.Errorf("delayed records are\n%s\nwant\n%s", got, a.delayed)
	}
}

// A backup that is not read, or that is cut off, leaves nothing in the data directory and no file, and
// another one can be taken. While one is taken there is no second.
func TestBackupCutOff(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.newTopic("large", 1)
	produceLarge(s, "large", 36<<20) // more than the buffers of a connection hold
	response, err := http.Post(s.url("/v1/backup"), "", nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("begin a backup: %v %v", response, err)
	}
	s.refuses("POST", "/v1/backup", "", "", http.StatusServiceUnavailable)
	response.Body.Close()
	file := filepath.Join(t.TempDir(), "backup")
	until.True(t, "another one is taken", func() bool {
		return exec.Command(binary, "backup", "--to", file, "--server", s.url("")).Run() == nil
	})
	until.True(t, "the snapshot is removed", func() bool {
		_, err := os.Stat(filepath.Join(s.data, "backup.new"))
		return os.IsNotExist(err)
	})
	response, err = http.Post(s.url("/v1/backup"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s.kill() // with a snapshot
	s.start()
	if _, err := os.Stat(filepath.Join(s.data, "backup.new")); !os.IsNotExist(err) {
		t.Errorf("a start has left the snapshot of a killed server: %v", err)
	}
	if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// stillBytes is how much the topic has that nobody writes to during backups.
const stillBytes = 10 << 20

// produceLarge fills a topic with so many bytes of records, at least.
func produceLarge(s *server, name string, bytes int) {
	s.t.Helper()
	producer := s.connect(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for sent := 0; sent < bytes; sent += 900_000 {
		if err := producer.ProduceSync(s.t.Context(), &kgo.Record{Topic: name, Value: make([]byte, 900_000)}).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
}
