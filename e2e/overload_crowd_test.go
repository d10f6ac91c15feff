package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rushVariable has the rush that a copy of the test's program makes, as JSON. A process of its own leaves the
// clients of the test, whose pace is measured, as quick as they are.
const rushVariable = "SLUICE_TEST_RUSH"

// rush is many clients at one edge, each of whom sends its next request when the last was answered, and heeds no
// Retry-After.
type rush struct {
	Edge, Address string
	Clients       int
	// Body is the bytes of a payload.
	Body int
}

// rushCounts are the answers of a rush so far: Taken has those of new work that was accepted, Refused those that
// said when to come again, and Wrong others.
type rushCounts struct {
	Taken, Refused, Wrong, Broken int64
	// Example is an answer that was wrong.
	Example string
}

// rushRequests makes the request of each edge, by the number of the request.
var rushRequests = map[string]func(r *rush, n int64) string{
	"enqueue": func(r *rush, n int64) string {
		return posted("/v1/jobs", fmt.Sprintf(`{"tenant":"rush","type":"rush","payload":{"n":%d,"fill":%q}}`, n, strings.Repeat("x", r.Body)))
	},
	"enter": func(*rush, int64) string { return posted("/v1/rooms/rush/visitors", "{}") },
	"list":  func(*rush, int64) string { return "GET /v1/actions HTTP/1.1\r\nHost: localhost\r\n\r\n" },
	"gate": func(*rush, int64) string {
		return "GET /checkout HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\r\n"
	},
}

func posted(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// runRush is the copy of the program: it prints the counts for each line that it reads, and ends with its input.
func runRush(text string) {
	var r rush
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	var counts struct{ number, taken, refused, wrong, broken atomic.Int64 }
	var example atomic.Value
	example.Store("")
	client := func() error {
		conn, err := net.Dial("tcp", r.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		input := bufio.NewReaderSize(conn, 4<<10)
		frame := r.frame(counts.number.Add(1))
		for {
			taken, refused, answer, err := r.one(conn, input, counts.number.Add(1), frame)
			switch {
			case taken:
				counts.taken.Add(1)
			case refused:
				counts.refused.Add(1)
			case answer != "":
				counts.wrong.Add(1)
				example.Store(answer)
			}
			if err != nil {
				return err
			}
		}
	}
	for range r.Clients {
		go func() {
			for {
				if err := client(); !errors.Is(err, errLastAnswer) {
					counts.broken.Add(1)
					<-time.After(100 * time.Millisecond)
				}
			}
		}()
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		_ = json.NewEncoder(os.Stdout).Encode(rushCounts{counts.taken.Load(), counts.refused.Load(), counts.wrong.Load(), counts.broken.Load(), example.Load().(string)})
	}
}

// frame returns the Kafka request of a client; nil: the rush is over HTTP.
func (r *rush) frame(client int64) []byte {
	if r.Edge != "produce" {
		return nil
	}
	return produceFrame("rush", int32(client%rushPartitions), r.Body)
}

// one sends a request, which has a number and is the frame if there is one, and reads its answer.
func (r *rush) one(conn net.Conn, input *bufio.Reader, n int64, frame []byte) (taken, refused bool, answer string, err error) {
	if frame != nil {
		taken, answer, err = produceOne(conn, input, frame)
		return taken, false, answer, err
	}
	if _, err = io.WriteString(conn, rushRequests[r.Edge](r, n)); err != nil {
		return false, false, "", err
	}
	response, err := http.ReadResponse(input, nil)
	if err != nil {
		return false, false, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 300))
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	busy := response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusTooManyRequests
	refused = busy && response.Header.Get("Retry-After") != ""
	if response.Close && err == nil {
		err = errLastAnswer
	}
	if !(response.StatusCode < 300 || refused) {
		answer = response.Status + " " + string(text)
	}
	return response.StatusCode < 300, refused, answer, err
}

// errLastAnswer ends a connection on which the server answers no more.
var errLastAnswer = errors.New("the last answer of the connection")

// running is a rush in progress.
type running struct {
	t      *testing.T
	input  io.Writer
	output *json.Decoder
}

// start runs the rush until the test ends.
func (r rush) start(t *testing.T) *running {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("nice", "-n", "10", os.Args[0]) // so that the test is no slower for it
	command.Env = append(os.Environ(), rushVariable+"="+string(text))
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return &running{t, input, json.NewDecoder(output)}
}

// counts returns those of the rush so far.
func (r *running) counts() (c rushCounts) {
	r.t.Helper()
	if _, err := io.WriteString(r.input, "\n"); err != nil {
		r.t.Fatal(err)
	}
	if err := r.output.Decode(&c); err != nil {
		r.t.Fatal(err)
	}
	return c
}
