package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/storetest"
)

// kafkaServer serves topics in memory, and returns where. What is asked over HTTP
// finds it by the environment.
func kafkaServer(t *testing.T) string {
	t.Helper()
	broker, err := topic.New(storetest.NewMemory(), topic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(api.New(broker))
	t.Cleanup(web.Close)
	t.Setenv(serverVariable, web.URL)
	server := kafka.NewServer(broker, kafka.Options{Addr: "127.0.0.1:0"})
	for _, start := range []func(context.Context) error{broker.Start, server.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for _, stop := range []func(context.Context) error{server.Stop, broker.Stop} {
			if err := stop(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return server.Addr()
}

// session runs command lines on one server, and writes down what they print.
type session struct {
	t       *testing.T
	brokers string
	log     strings.Builder
	// plain sessions are of commands without --brokers.
	plain bool
}

func newSession(t *testing.T) *session {
	return &session{t: t, brokers: kafkaServer(t)}
}

// on runs a command line with an input, and returns its exit code and output.
func (s *session) on(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	root := newRoot()
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&err)
	if !s.plain {
		args = append(args, "--brokers", s.brokers)
	}
	root.SetArgs(args)
	code = explain(ctx, root.ExecuteContext(ctx), &err)
	return code, out.String(), err.String()
}

var (
	identity = regexp.MustCompile(`[0-9a-f]{32}`)
	took     = regexp.MustCompile(` in [0-9]+(ms|\.[0-9]s)\n`)
	seconds  = regexp.MustCompile(`"seconds":[0-9.e-]+`)
	member   = regexp.MustCompile(`sluice-[0-9a-f-]{36}`)
)

// run writes down a command line and what it printed, but for what is not the
// same each time.
func (s *session) run(line string) { s.t.Helper(); s.feed("", line) }

func (s *session) feed(stdin, line string) {
	s.t.Helper()
	code, stdout, stderr := s.on(s.t.Context(), stdin, words(line)...)
	for _, clean := range []struct {
		what *regexp.Regexp
		by   string
	}{{identity, "ID"}, {took, " in TIME\n"}, {seconds, `"seconds":0.1`}, {member, "MEMBER"}} {
		stdout = clean.what.ReplaceAllString(stdout, clean.by)
	}
	fmt.Fprintf(&s.log, "$ sluice %s\n%s", line, stdout)
	if stderr != "" {
		fmt.Fprintf(&s.log, "# standard error\n%s", stderr)
	}
	if code != 0 {
		fmt.Fprintf(&s.log, "# code %d\n", code)
	}
	s.log.WriteString("\n")
}

// words splits a command line; single quotes hold words together.
func words(line string) []string {
	var list []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

func TestTopicCommands(t *testing.T) {
	s := newSession(t)
	s.run("topic list")
	s.run("topic create orders --partitions 3 --retention 24h --set retention.bytes=1000000")
	s.run("topic create reminders --delay-enable --delay 30m --json")
	s.run("topic create paid-orders --view-of orders --where 'headers.tag == \"paid\"'")
	s.run("topic create orders")
	s.run("topic create 'a b'")
	s.run("topic create odd --set retension.ms=5")
	s.run("topic create odd --set cleanup.policy=compact")
	s.run("topic create odd --replicas 3")
	s.run("topic create odd --set retention.ms")
	s.run("topic create odd --partitions 0")
	s.run("topic create odd --partitions 3 --view-of orders --where true")
	s.run("topic create odd --retention 1h --set retention.ms=5")
	s.run("topic create odd --view-of orders --where 'nonsense('")
	s.feed(`{"key":"a","value":"1","partition":0,"timestamp":1000}`+"\n"+`{"key":"b","value":"2","partition":1,"timestamp":2000}`+"\n",
		"topic produce orders --json --header tag=paid")
	s.run("topic list")
	s.run("topic list --json")
	s.run("topic describe orders")
	s.run("topic describe paid-orders")
	s.run("topic describe orders --json")
	s.run("topic describe nosuch")
	s.run("topic alter orders --set retention.ms=5000 --unset retention.bytes --partitions 4")
	s.run("topic alter orders --partitions 3 --grace 1h --json")
	s.run("topic alter orders --set retention.ms=1 --partitions 2")
	s.run("topic alter orders --set sluice.view.of=reminders --json")
	s.run("topic alter orders --unset segment.ms")
	s.run("topic alter orders")
	s.run("topic alter orders --set a=b --unset a")
	s.run("topic alter orders --partitions 2 --grace 1h")
	s.run("topic alter orders --replicas 3")
	s.run("topic alter orders --replicas 6")
	s.run("topic alter orders --partitions 1 --server nowhere")
	s.run("topic describe orders")
	s.run("topic delete orders")
	s.run("topic delete paid-orders reminders")
	s.run("topic delete orders nosuch --json")
	golden(t, "topic", s.log.String())
}

func TestProduceAndConsume(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	s.run("topic create reminders --delay-enable")
	s.run("topic consume orders --until-end")
	s.feed("plain\nwith \ttab\n\nlast", "topic produce orders")
	s.feed("k1:v1\nk2:v:2\n", "topic produce orders --key-separator : --header tag=paid --header n=1 --acks 1")
	s.feed("k3:v3\nnothing\n", "topic produce orders --key-separator :")
	s.feed("state,total\nNY,12\n\"C,A\",7\n", "topic produce orders --csv --key-column state --acks 0")
	s.feed("state\nNY\n", "topic produce orders --csv --key-column nosuch")
	s.feed("x", "topic produce orders --csv --json")
	s.feed("x", "topic produce orders --acks 2")
	s.feed("x", "topic produce orders --header =v")
	s.feed("x", "topic produce orders --delay 10m")
	s.feed("x", "topic produce orders --deliver-at tomorrow")
	s.feed("x", "topic produce nosuch")
	s.feed(strings.Repeat("x", 2<<20), "topic produce orders")
	golden(t, "produce", s.log.String())

	s.log.Reset()
	s.run("topic create copy")
	s.feed(`{"key":"a","value":{"total": 12},"headers":{"tag":"paid","n":["1","2"]},"timestamp":1700000000000}
{"key":null,"value":"<b>\u0007","timestamp":1700000000001}
{"key_base64":"/w==","value_base64":"/v8=","headers_base64":{"raw":"/w=="},"timestamp":1700000000002}

{"key":"gone","value":null,"timestamp":1700000000003}
`, "topic produce copy --json")
	s.feed(`{"key":"a","valeu":1}`, "topic produce copy --json")
	s.feed(`{"value":"a"} {"value":"b"}`, "topic produce copy --json")
	s.feed(`{"value":"a","value_base64":"YQ=="}`, "topic produce copy --json")
	s.feed(`{"value":"a","partition":9}`, "topic produce copy --json")
	s.run("topic consume copy --until-end")
	s.run("topic consume copy --until-end --json")
	s.run(`topic consume copy --until-end --format '%p:%o %k=%v %h{%k=%v }\n'`)
	s.run("topic consume copy --from 2 --max 1 --format '%o '")
	s.run("topic consume copy --from 2023-11-14T22:13:20.001Z --until-end --format '%o '")
	s.run("topic consume copy --from 99 --until-end --format '%o '")
	s.run("topic consume copy --from end --until-end --format '%o '")
	s.run("topic consume copy --from 1h --until-end --format '%o '")
	s.run("topic consume copy --from yesterday")
	s.run("topic consume copy --partition 1")
	s.run("topic consume copy --max -1")
	s.run("topic consume copy --format '%Z'")
	s.run("topic consume copy --group g --partition 0")
	s.run("topic consume copy --group g --from 5")
	s.run("topic consume nosuch")
	golden(t, "consume", s.log.String())
}

// What was printed as JSON and produced again is the same records.
func TestConsumedRecordsCanBeProduced(t *testing.T) {
	s := newSession(t)
	s.run("topic create a")
	s.run("topic create b")
	code, _, stderr := s.on(t.Context(), `{"key":"k","value":"v","headers":{"x":["1","2"]},"headers_base64":{"y":"/w=="},"timestamp":5}
{"key_base64":"/w==","value":null,"timestamp":6}
`, "topic", "produce", "a", "--json")
	_, first, _ := s.on(t.Context(), "", "topic", "consume", "a", "--until-end", "--json")
	s.on(t.Context(), first, "topic", "produce", "b", "--json")
	_, second, _ := s.on(t.Context(), "", "topic", "consume", "b", "--until-end", "--json")
	if code != 0 || strings.Count(first, "\n") != 2 || second != strings.ReplaceAll(first, `"topic":"a"`, `"topic":"b"`) {
		t.Errorf("code %d, %s\n%s\nbecame\n%s", code, stderr, first, second)
	}
}

// A view that hides its source's last records ends all the same.
func TestConsumeAViewToItsEnd(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	s.run("topic create paid --view-of orders --where 'headers.tag == \"paid\"'")
	s.feed("one\ntwo\n", "topic produce orders --header tag=paid")
	s.feed("three\nfour\n", "topic produce orders --header tag=open")
	code, stdout, stderr := s.on(t.Context(), "", "topic", "consume", "paid", "--until-end", "--format", `%o %v\n`)
	if code != 0 || stdout != "0 one\n1 two\n" {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
	code, _, stderr = s.on(t.Context(), "x", "topic", "produce", "paid")
	if want := "sluice: paid is a view of orders: produce to that\n"; code != 2 || stderr != want {
		t.Errorf("code %d, %q, want %q", code, stderr, want)
	}
}

// A cancelled consumer has committed all that it has printed, and ends with 0.
func TestConsumeEndsWithCtrlC(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	s.feed("one\ntwo\n", "topic produce orders")
	ctx, cancel := context.WithCancel(t.Context())
	out := &signalWriter{want: "two\n", seen: cancel}
	root := newRoot()
	root.SetOut(out)
	var errors bytes.Buffer
	root.SetErr(&errors)
	root.SetArgs([]string{"topic", "consume", "orders", "--group", "g", "--format", `%v\n`, "--brokers", s.brokers})
	if code := explain(ctx, root.ExecuteContext(ctx), &errors); code != 0 || out.String() != "one\ntwo\n" {
		t.Errorf("code %d, %q, %s", code, out, &errors)
	}
	s.feed("three\n", "topic produce orders")
	if _, stdout, stderr := s.on(t.Context(), "", "topic", "consume", "orders", "--group", "g", "--until-end", "--format", `%v\n`); stdout != "three\n" {
		t.Errorf("the group goes on with %q, %s; want three", stdout, stderr)
	}
}

// signalWriter calls seen when what was written ends as wanted.
type signalWriter struct {
	bytes.Buffer
	want string
	seen func()
}

func (w *signalWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.HasSuffix(w.String(), w.want) {
		w.seen()
	}
	return n, err
}

func TestGroupCommands(t *testing.T) {
	s := newSession(t)
	s.run("group list")
	s.run("topic create orders --partitions 2")
	s.run("topic create other")
	var records strings.Builder
	for i := range 20 {
		fmt.Fprintf(&records, `{"value":"v%d","partition":%d,"timestamp":%d}`+"\n", i, i%2, 1700000000000+i*1000)
	}
	s.feed(records.String(), "topic produce orders --json")
	code, stdout, stderr := s.on(t.Context(), "", "topic", "consume", "orders", "--group", "billing", "--until-end", "--format", `%v\n`)
	if code != 0 || strings.Count(stdout, "\n") != 20 {
		t.Fatalf("code %d, %d lines, %s", code, strings.Count(stdout, "\n"), stderr)
	}
	s.feed(`{"value":"more","partition":1,"timestamp":1700000030000}`, "topic produce orders --json")
	s.run("group list")
	s.run("group list --json")
	s.run("group describe billing")
	s.run("group describe billing --json")
	s.run("group describe nosuch")
	s.run("group reset billing --topic orders --to start --dry-run")
	s.run("group reset billing --topic orders --by -3")
	s.run("group reset billing --topic orders --by -100 --json")
	s.run("group reset billing --topic orders --to 4")
	s.run("group reset billing --topic orders --to 99 --dry-run")
	s.run("group reset billing --topic orders --to 2023-11-14T22:13:25Z")
	s.run("group reset billing --topic other --by 1")
	s.run("group reset fresh --topic orders --to end")
	s.run("group reset billing --topic nosuch --to end")
	s.run("group reset billing --topic orders")
	s.run("group reset billing --topic orders --to x")
	s.run("group reset billing --to end")
	s.run("group describe billing")
	s.run("group delete fresh")
	s.run("group delete fresh --json")
	s.run("group delete billing --json")
	s.run("group list")
	golden(t, "group", s.log.String())
}

// A group with members is not moved, and says so.
func TestActiveGroupIsNotReset(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	s.feed("one\n", "topic produce orders")
	ctx, cancel := context.WithCancel(t.Context())
	reading := make(chan struct{})
	done := make(chan int)
	go func() {
		var errors bytes.Buffer
		root := newRoot()
		root.SetOut(&signalWriter{want: "one\n", seen: func() { close(reading) }})
		root.SetErr(&errors)
		root.SetArgs([]string{"topic", "consume", "orders", "--group", "g", "--format", `%v\n`, "--brokers", s.brokers})
		done <- explain(ctx, root.ExecuteContext(ctx), &errors)
	}()
	<-reading
	code, _, stderr := s.on(t.Context(), "", "group", "reset", "g", "--topic", "orders", "--to", "start")
	want := "sluice: group \"g\" is Stable, with 1 member: stop them first, since they would go on where they are\n"
	if code != 1 || stderr != want {
		t.Errorf("code %d, %q, want %q", code, stderr, want)
	}
	if code, stdout, _ := s.on(t.Context(), "", "group", "describe", "g"); code != 0 || !strings.Contains(stdout, "sluice 127.0.0.1") || !strings.Contains(stdout, "Stable") {
		t.Errorf("code %d:\n%s", code, stdout)
	}
	if code, _, stderr := s.on(t.Context(), "", "group", "delete", "g"); code != 1 || stderr != "sluice: group \"g\" has members: stop them first\n" {
		t.Errorf("delete: code %d, %q", code, stderr)
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("the consumer ended with code %d", code)
	}
}

func TestNoBroker(t *testing.T) {
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"topic list --brokers 127.0.0.1:1", "sluice: no broker at 127.0.0.1:1 (connection refused): start one with \"sluice serve\", or name another with --brokers\n", 1},
		{"topic list --brokers nowhere", "sluice: --brokers: \"nowhere\": want host:port, such as 127.0.0.1:9092\n", 2},
		{"group list --brokers 127.0.0.1:1,127.0.0.1:2", "sluice: no broker at 127.0.0.1:1, 127.0.0.1:2 (connection refused): start one with \"sluice serve\", or name another with --brokers\n", 1},
		{"topic cancel a b --server http://127.0.0.1:1", "sluice: no server at http://127.0.0.1:1 (connection refused): start one with \"sluice serve\", or name another with --server\n", 1},
		{"topic cancel a", "sluice: give a topic and the id of a record; \"sluice topic delayed TOPIC\" shows them; see sluice topic cancel --help\n", 2},
	} {
		if code, _, stderr := sluice(t, strings.Fields(test.args)...); code != test.code || stderr != test.want {
			t.Errorf("%s: code %d, %q\nwant %d, %q", test.args, code, stderr, test.code, test.want)
		}
	}
}
