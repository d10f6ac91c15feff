package topic

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/cli/clitest"
)

func TestTopicCommands(t *testing.T) {
	s := clitest.NewSession(t, Command)
	s.Run("topic list")
	s.Run("topic create orders --partitions 3 --retention 24h --set retention.bytes=1000000")
	s.Run("topic create reminders --delay-enable --delay 30m --json")
	s.Run("topic create paid-orders --view-of orders --where 'headers.tag == \"paid\"'")
	s.Run("topic create orders")
	s.Run("topic create 'a b'")
	s.Run("topic create odd --set retension.ms=5")
	s.Run("topic create odd --set cleanup.policy=compacted")
	s.Run("topic create odd --replicas 3")
	s.Run("topic create odd --set retention.ms")
	s.Run("topic create odd --partitions 0")
	s.Run("topic create odd --partitions 3 --view-of orders --where true")
	s.Run("topic create odd --retention 1h --set retention.ms=5")
	s.Run("topic create odd --view-of orders --where 'nonsense('")
	s.Feed(`{"key":"a","value":"1","partition":0,"timestamp":1000}`+"\n"+`{"key":"b","value":"2","partition":1,"timestamp":2000}`+"\n",
		"topic produce orders --json --header tag=paid")
	s.Run("topic list")
	s.Run("topic list --json")
	s.Run("topic describe orders")
	s.Run("topic describe paid-orders")
	s.Run("topic describe orders --json")
	s.Run("topic describe nosuch")
	s.Run("topic alter orders --set retention.ms=5000 --unset retention.bytes --partitions 4")
	s.Run("topic alter orders --partitions 3 --grace 1h --json")
	s.Run("topic alter orders --set retention.ms=1 --partitions 2")
	s.Run("topic alter orders --set sluice.view.of=reminders --json")
	s.Run("topic alter orders --unset message.format.version")
	s.Run("topic alter orders")
	s.Run("topic alter orders --set a=b --unset a")
	s.Run("topic alter orders --partitions 2 --grace 1h")
	s.Run("topic alter orders --replicas 3")
	s.Run("topic alter orders --replicas 6")
	s.Run("topic alter orders --partitions 1 --server nowhere")
	s.Run("topic describe orders")
	s.Run("topic delete orders")
	s.Run("topic delete paid-orders reminders")
	s.Run("topic delete orders nosuch --json")
	clitest.Golden(t, "topic", s.Log.String())
}

func TestProduceAndConsume(t *testing.T) {
	s := clitest.NewSession(t, Command)
	s.Run("topic create orders")
	s.Run("topic create reminders --delay-enable")
	s.Run("topic consume orders --until-end")
	s.Feed("plain\nwith \ttab\n\nlast", "topic produce orders")
	s.Feed("k1:v1\nk2:v:2\n", "topic produce orders --key-separator : --header tag=paid --header n=1 --acks 1")
	s.Feed("k3:v3\nnothing\n", "topic produce orders --key-separator :")
	s.Feed("state,total\nNY,12\n\"C,A\",7\n", "topic produce orders --csv --key-column state --acks 0")
	s.Feed("state\nNY\n", "topic produce orders --csv --key-column nosuch")
	s.Feed("x", "topic produce orders --csv --json")
	s.Feed("x", "topic produce orders --acks 2")
	s.Feed("x", "topic produce orders --header =v")
	s.Feed("x", "topic produce orders --delay 10m")
	s.Feed("x", "topic produce orders --deliver-at tomorrow")
	s.Feed("x", "topic produce nosuch")
	s.Feed(strings.Repeat("x", 2<<20), "topic produce orders")
	clitest.Golden(t, "produce", s.Log.String())

	s.Log.Reset()
	s.Run("topic create copy")
	s.Feed(`{"key":"a","value":{"total": 12},"headers":{"tag":"paid","n":["1","2"]},"timestamp":1700000000000}
{"key":null,"value":"<b>\u0007","timestamp":1700000000001}
{"key_base64":"/w==","value_base64":"/v8=","headers_base64":{"raw":"/w=="},"timestamp":1700000000002}

{"key":"gone","value":null,"timestamp":1700000000003}
`, "topic produce copy --json")
	s.Feed(`{"key":"a","valeu":1}`, "topic produce copy --json")
	s.Feed(`{"value":"a"} {"value":"b"}`, "topic produce copy --json")
	s.Feed(`{"value":"a","value_base64":"YQ=="}`, "topic produce copy --json")
	s.Feed(`{"value":"a","partition":9}`, "topic produce copy --json")
	s.Run("topic consume copy --until-end")
	s.Run("topic consume copy --until-end --json")
	s.Run(`topic consume copy --until-end --format '%p:%o %k=%v %h{%k=%v }\n'`)
	s.Run("topic consume copy --from 2 --max 1 --format '%o '")
	s.Run("topic consume copy --from 2023-11-14T22:13:20.001Z --until-end --format '%o '")
	s.Run("topic consume copy --from 99 --until-end --format '%o '")
	s.Run("topic consume copy --from end --until-end --format '%o '")
	s.Run("topic consume copy --from 1h --until-end --format '%o '")
	s.Run("topic consume copy --from yesterday")
	s.Run("topic consume copy --partition 1")
	s.Run("topic consume copy --max -1")
	s.Run("topic consume copy --format '%Z'")
	s.Run("topic consume copy --group g --partition 0")
	s.Run("topic consume copy --group g --from 5")
	s.Run("topic consume nosuch")
	clitest.Golden(t, "consume", s.Log.String())
}

// Records that are printed as JSON and produced again are unchanged.
func TestConsumedRecordsCanBeProduced(t *testing.T) {
	s := clitest.NewSession(t, Command)
	s.Run("topic create a")
	s.Run("topic create b")
	code, _, stderr := s.On(t.Context(), `{"key":"k","value":"v","headers":{"x":["1","2"]},"headers_base64":{"y":"/w=="},"timestamp":5}
{"key_base64":"/w==","value":null,"timestamp":6}
`, "topic", "produce", "a", "--json")
	_, first, _ := s.On(t.Context(), "", "topic", "consume", "a", "--until-end", "--json")
	s.On(t.Context(), first, "topic", "produce", "b", "--json")
	_, second, _ := s.On(t.Context(), "", "topic", "consume", "b", "--until-end", "--json")
	if code != 0 || strings.Count(first, "\n") != 2 || second != strings.ReplaceAll(first, `"topic":"a"`, `"topic":"b"`) {
		t.Errorf("code %d, %s\n%s\nbecame\n%s", code, stderr, first, second)
	}
}

// Consuming a view ends even if the view hides its source's last records.
func TestConsumeAViewToItsEnd(t *testing.T) {
	s := clitest.NewSession(t, Command)
	s.Run("topic create orders")
	s.Run("topic create paid --view-of orders --where 'headers.tag == \"paid\"'")
	s.Feed("one\ntwo\n", "topic produce orders --header tag=paid")
	s.Feed("three\nfour\n", "topic produce orders --header tag=open")
	code, stdout, stderr := s.On(t.Context(), "", "topic", "consume", "paid", "--until-end", "--format", `%o %v\n`)
	if code != 0 || stdout != "0 one\n1 two\n" {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
	code, _, stderr = s.On(t.Context(), "x", "topic", "produce", "paid")
	if want := "sluice: paid is a view of orders: produce to that\n"; code != 2 || stderr != want {
		t.Errorf("code %d, %q, want %q", code, stderr, want)
	}
}

// A cancelled consumer commits all printed records and ends with 0.
func TestConsumeEndsWithCtrlC(t *testing.T) {
	s := clitest.NewSession(t, Command)
	s.Run("topic create orders")
	s.Feed("one\ntwo\n", "topic produce orders")
	ctx, cancel := context.WithCancel(t.Context())
	out := &clitest.SignalWriter{Want: "two\n", Seen: cancel}
	if code, stderr := s.Onto(ctx, out, "topic", "consume", "orders", "--group", "g", "--format", `%v\n`); code != 0 || out.String() != "one\ntwo\n" {
		t.Errorf("code %d, %q, %s", code, out, stderr)
	}
	s.Feed("three\n", "topic produce orders")
	if _, stdout, stderr := s.On(t.Context(), "", "topic", "consume", "orders", "--group", "g", "--until-end", "--format", `%v\n`); stdout != "three\n" {
		t.Errorf("the group goes on with %q, %s; want three", stdout, stderr)
	}
}
