package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// binary is the path of sluice, which TestMain builds with go and buildArgs. Without debug information it
// links in half of the time.
var (
	binary    string
	buildArgs = []string{"build", "-ldflags=-s"}
)

// long reports whether SLUICE_LONG asks for longer runs, as make test-all does.
func long() bool { return os.Getenv("SLUICE_LONG") != "" }

func TestMain(m *testing.M) {
	if text := os.Getenv(rushVariable); text != "" {
		runRush(text)
		return
	}
	dir, err := os.MkdirTemp("", "sluice-e2e")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", append(buildArgs, "-o", binary, "../cmd/sluice")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sluice: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// server is a `sluice serve` that can be killed and restarted on the same data and address.
type server struct {
	t    *testing.T
	data string
	addr string
	// kafka is the address for Kafka clients.
	kafka string
	// nodes is the cluster that the server belongs to; nil: none.
	nodes *nodes
	// program is the path of the binary, and command the subcommand that it runs.
	program string
	command []string
	args    []string
	env     []string // in addition to the test's environment
	// secure is the client of a server with TLS; nil: it has none.
	secure *http.Client
	// files is how many files the process may open; 0: as many as the test.
	files int
	cmd   *exec.Cmd
	log   bytes.Buffer
}

func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	free := ports.Addrs(t, 2)
	s := &server{t: t, data: t.TempDir(), addr: free[0], kafka: free[1], program: binary, args: args}
	s.command = []string{"serve", "--kafka", s.kafka, "--bulk-webhook-allow", "127.0.0.0/8"}
	t.Cleanup(func() {
		s.kill()
		if at := bytes.Index(s.log.Bytes(), []byte("WARNING: DATA RACE")); at >= 0 {
			t.Errorf("the server has a data race:\n%.4000s", s.log.Bytes()[at:])
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", tail(s.log.Bytes(), 4000))
		}
	})
	return s
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startServer starts a server that runs until the test ends.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.start()
	return s
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// start starts the server and waits until it is ready.
func (s *server) start() {
	s.t.Helper()
	s.launch()
	s.awaitReady()
}

// awaitReady waits until a launched server is ready. One that found its store away as it
// started is launched again, as by a supervisor.
func (s *server) awaitReady() {
	s.t.Helper()
	until.True(s.t, "the server is ready", func() bool {
		if s.ended() {
			err := s.cmd.Wait()
			if !bytes.Contains(tail(s.log.Bytes(), 1000), []byte("sluice: open ")) {
				s.t.Fatalf("the server ended as it started: %v", err)
			}
			s.launch()
		}
		response, err := http.Get(s.url("/readyz"))
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// ended reports whether the process has ended and nobody has waited for it.
func (s *server) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

// launch starts the server and does not wait.
func (s *server) launch() {
	s.t.Helper()
	command := slices.Concat([]string{s.program}, s.command, []string{"--data", s.data, "--http", s.addr}, s.args)
	if s.files > 0 {
		command = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, s.files), "sh"}, command...)
	}
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the server with SIGKILL.
func (s *server) kill() {
	if s.cmd != nil && s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// terminate ends the server with SIGTERM; it must exit with code 0.
func (s *server) terminate() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("after SIGTERM: %v, want code 0", err)
	}
}

// hang stops the server's process until resume, as on a machine that hangs.
func (s *server) hang() { s.signal(syscall.SIGSTOP) }

func (s *server) resume() { s.signal(syscall.SIGCONT) }

func (s *server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) url(path string) string {
	if s.secure != nil {
		return "https://" + s.addr + path
	}
	return "http://" + s.addr + path
}

// answer is an answer of the server.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// json decodes the answer's body.
func (a answer) json(into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("%d %s: %w", a.status, a.body, err)
	}
	return nil
}

// client keeps as many connections as tests have requests in flight at one time.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// do makes one request; an error means that no answer arrived.
func (s *server) do(method, path, contentType string, body []byte, header ...string) (answer, error) {
	return s.doWithin(30*time.Second, method, path, contentType, body, header...)
}

// doWithin is do with a bound on the time.
func (s *server) doWithin(most time.Duration, method, path, contentType string, body []byte, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url(path), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return send(cmp.Or(s.secure, client), request)
}

// send sends a request and reads its answer.
func send(by *http.Client, request *http.Request) (answer, error) {
	response, err := by.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, content}, err
}

// call makes a JSON request that must be answered with the status, and decodes the answer. As clients
// do, it repeats a request that was answered 503: on a busy machine a healthy Redis may answer too late.
func (s *server) call(method, path, body string, status int, into any) {
	s.t.Helper()
	var a answer
	until.True(s.t, method+" "+path+" is not answered 503", func() (done bool) {
		var err error
		if a, err = s.do(method, path, "application/json", []byte(body)); err != nil {
			s.t.Fatal(err)
		}
		return a.status != http.StatusServiceUnavailable || status == http.StatusServiceUnavailable
	})
	if a.status != status {
		s.t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.status, a.body, status)
	}
	if into != nil {
		if err := a.json(into); err != nil {
			s.t.Fatal(err)
		}
	}
}

// action is the part of GET /v1/actions/{id} that tests need.
type action struct {
	ID         string                     `json:"id"`
	Status     string                     `json:"status"`
	Paused     bool                       `json:"paused"`
	Total      *int64                     `json:"total"`
	Received   int64                      `json:"received"`
	Pending    int64                      `json:"pending"`
	Ready      int64                      `json:"ready"`
	NonReady   int64                      `json:"non_ready"`
	InFlight   int64                      `json:"in_flight"`
	Succeeded  int64                      `json:"succeeded"`
	Failed     int64                      `json:"failed"`
	Canceled   int64                      `json:"canceled"`
	Throttled  int64                      `json:"throttled"`
	Result     map[string]json.RawMessage `json:"result"`
	FinishedAt *time.Time                 `json:"finished_at"`
}

func (s *server) action(id string) (a action) {
	s.t.Helper()
	s.call("GET", "/v1/actions/"+id, "", http.StatusOK, &a)
	return a
}
