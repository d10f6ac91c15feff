package e2e

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The doctor finds nothing wrong with a server, running or killed. It names each file in which a
// byte has changed, of each kind, and each that is missing or of another release, and changes none.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	newBackupAmple(s)
	s.newTopic("orders", 2)
	producer := s.connect()
	for range 50 {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: make([]byte, 20_000)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	sluice(t, "doctor", "--server", s.url(""), "--brokers", s.kafka)
	isFound(t, s, "another process has it open")
	s.terminate() // which writes points
	s.start()
	s.call("POST", "/v1/actions", `{"tenant":"t","type":"nobody-runs-it"}`, http.StatusCreated, nil)
	s.call("PUT", "/v1/rooms/second", `{"mode":"teller","capacity":5}`, http.StatusCreated, nil)
	s.newTopic("second", 1)
	s.kill() // which leaves logs of the databases
	if said := sluice(t, "doctor", "--data", s.data); !strings.Contains(said, "accounts") {
		t.Errorf("the doctor says nothing of accounts: %s", said)
	}
	replace(t, filepath.Join(s.data, "access.json"), []byte(`{"format":1,"tokens":[{"name":"a","expires":"2020-01-01T00:00:00Z","sha256":"`+strings.Repeat("A", 43)+`="},{"name":"b","sha256":"`+strings.Repeat("B", 43)+`="}]}`))
	if said := sluice(t, "doctor", "--data", s.data, "--json"); !strings.Contains(said, `"result":"warning","detail":"2 tokens, 1 of them expired`) {
		t.Errorf("a token has expired, and the doctor says %s", said)
	}
	for _, broken := range []string{`{"format":1,"tokens":[`, `{"format":99}`} {
		replace(t, filepath.Join(s.data, "access.json"), []byte(broken))
		isFound(t, s, "access.json")
	}
	replace(t, filepath.Join(s.data, "access.json"), []byte(`{"format":1,"tokens":[]}`))
	for _, kind := range []string{"*.log", "MANIFEST-*", "room/*.log", "room/MANIFEST-*", "topic/meta/*.log", "topic/meta/MANIFEST-*", "topic/logs/*/*.log", "topic/FORMAT"} {
		path := someFile(t, s, kind)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		broken := append([]byte(nil), whole...)
		broken[8] ^= 1
		replace(t, path, broken)
		named := path
		if strings.HasSuffix(path, "FORMAT") {
			named = filepath.Dir(path)
		}
		isFound(t, s, named)
		replace(t, path, whole)
	}
	sluice(t, "doctor", "--data", s.data)
	points := someFile(t, s, "topic/logs/*/*.points")
	replace(t, points, []byte("torn"))
	if said := sluice(t, "doctor", "--data", s.data, "--json"); !strings.Contains(said, `"result":"warning","detail":"`+points) {
		t.Errorf("points are torn, and the doctor says %s", said)
	}
	gone := someFile(t, s, "topic/logs/*/*.log")
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	isFound(t, s, filepath.Dir(gone))
}

// someFile returns the largest file that matches a pattern below the data directory.
func someFile(t *testing.T, s *server, pattern string) (path string) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(s.data, pattern))
	size := int64(-1)
	for _, of := range paths {
		if info, err := os.Stat(of); err == nil && info.Size() > size {
			path, size = of, info.Size()
		}
	}
	if size <= 0 {
		t.Fatalf("there is no %s in %s", pattern, s.data)
	}
	return path
}

func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// isFound checks that the doctor reports an error that has a text.
func isFound(t *testing.T, s *server, text string) {
	t.Helper()
	out, err := exec.Command(binary, "doctor", "--data", s.data, "--json").Output()
	if code, ended := errors.AsType[*exec.ExitError](err); !ended || code.ExitCode() != 1 || !strings.Contains(string(out), text) {
		t.Errorf("the doctor does not find %q with code 1: %v\n%s", text, err, out)
	}
}
