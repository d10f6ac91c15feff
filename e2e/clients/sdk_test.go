package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// language is an SDK: the program that plays the scenarios with it.
type language struct {
	name    string
	command []string
}

// languages returns all SDKs.
func languages() []language {
	return []language{
		{"python", []string{"python3", "../../sdk/python/scenarios.py"}},
		{"typescript", []string{"node", "../../sdk/typescript/scenarios.js"}},
		{"go", []string{scenarios}},
	}
}

// A quota that does not say when it has room again is an error at once, in each language; what may pass is asked again.
func TestQuotasAreNotAskedAgain(t *testing.T) {
	answers := []struct {
		status      int
		code, after string
	}{{503, "unavailable", ""}, {429, "busy", ""}, {429, "quota", "1"}, {429, "quota", ""}}
	for _, l := range languages() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				of := answers[min(int(asked.Add(1)), len(answers))-1]
				w.Header().Set("Content-Type", "application/problem+json")
				if of.after != "" {
					w.Header().Set("Retry-After", of.after)
				}
				w.WriteHeader(of.status)
				_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"not now"}`, of.status, of.code)
			}))
			t.Cleanup(server.Close)
			equal(t, "the output", string(must(l.run(t, "refused", server.URL, "shop").Output())(t)), "quota\n")
			equal(t, "the requests", int(asked.Load()), len(answers))
		})
	}
}

// TestSDKs plays the same scenarios with each SDK: what jobs may come to, a room, and a stop.
func TestSDKs(t *testing.T) {
	ready, address, _ := startNode(t)
	ready()
	url := "http://" + address
	for _, l := range languages() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			t.Run("scenarios", func(t *testing.T) { l.play(t, url) })
			t.Run("room", func(t *testing.T) {
				call(t, "PUT", url+"/v1/rooms/"+l.name, `{"mode":"teller","capacity":1}`)
				equal(t, "the output", string(must(l.run(t, "room", url, l.name).Output())(t)), "ok\n")
			})
			t.Run("stop", func(t *testing.T) { l.stop(t, url) })
		})
	}
}

func (l language) run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, l.command[0], append(l.command[1:], args...)...)
	command.Env = append(os.Environ(), "PYTHONPATH=../../sdk/python")
	command.Stderr = t.Output()
	return command
}

// play runs the scenarios, and compares what the server says of each action.
func (l language) play(t *testing.T, url string) {
	file := filepath.Join("..", "..", "sdk", "scenarios.json")
	var scenarios []struct {
		Name     string
		Action   map[string]any
		Failures []map[string]any
	}
	if err := json.Unmarshal(must(os.ReadFile(file))(t), &scenarios); err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(strings.NewReader(string(must(l.run(t, "play", url, file).Output())(t))))
	for _, want := range scenarios {
		var got struct {
			Name     string
			Action   map[string]any
			Failures []map[string]any
		}
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		equal(t, "the scenario", got.Name, want.Name)
		contains(t, want.Name, got.Action, want.Action)
		equal(t, want.Name+": the number of failures", len(got.Failures), len(want.Failures))
		for i := range min(len(got.Failures), len(want.Failures)) {
			contains(t, want.Name, got.Failures[i], want.Failures[i])
		}
	}
}

// contains checks the fields of an object that are given.
func contains(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	for field, value := range want {
		if !reflect.DeepEqual(got[field], value) {
			t.Errorf("%s: %s is %v, want %v", what, field, got[field], value)
		}
	}
}

// stop ends a worker by SIGTERM while many jobs wait: it hands back what it has not begun, and
// acknowledges the rest. So a second worker runs each of the others, and no job runs twice.
func (l language) stop(t *testing.T, url string) {
	const jobs = 400 // more than run while the test stands still for seconds
	kind, id := "stop-"+l.name, "stop-"+l.name
	call(t, "POST", url+"/v1/actions", `{"tenant":"sdk","id":"`+id+`","type":"`+kind+`"}`)
	call(t, "POST", url+"/v1/actions/"+id+"/jobs", strings.Repeat("{}\n", jobs))
	call(t, "POST", url+"/v1/actions/"+id+"/seal", fmt.Sprintf(`{"total":%d}`, jobs))

	runs := map[string]int{}
	l.work(t, url, kind, runs, func() bool { return len(runs) >= 20 })
	action := call(t, "GET", url+"/v1/actions/"+id, "")
	contains(t, "after the stop", action, map[string]any{"in_flight": 0.0, "succeeded": float64(len(runs)), "retried": 0.0})
	if len(runs) == jobs {
		t.Error("all jobs ran before the worker was stopped")
	}
	l.work(t, url, kind, runs, func() bool { return len(runs) == jobs })
	eventually(t, "the action has finished", func() bool {
		action = call(t, "GET", url+"/v1/actions/"+id, "")
		return action["finished_at"] != nil
	})
	contains(t, "in the end", action, map[string]any{"succeeded": float64(jobs), "retried": 0.0})
	for id, times := range runs {
		if times != 1 {
			t.Errorf("job %s ran %d times", id, times)
		}
	}
}

// work runs a worker, counts the jobs that it runs by their ids, and stops it when it is enough.
func (l language) work(t *testing.T, url, kind string, runs map[string]int, enough func() bool) {
	t.Helper()
	command := l.run(t, "work", url, kind)
	lines := bufio.NewScanner(must(command.StdoutPipe())(t))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for stopped := false; lines.Scan(); {
		runs[lines.Text()]++
		if !stopped && enough() {
			stopped = true
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
}

// call makes a request that must succeed, and returns the answer.
func call(t *testing.T, method, url, body string) (answer map[string]any) {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(url, "/jobs") {
		request.Header.Set("Content-Type", "application/x-ndjson")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content := must(io.ReadAll(response.Body))(t)
	if response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s\n%s", method, url, response.Status, content)
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}
