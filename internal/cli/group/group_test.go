package group_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/group"
	"github.com/sluice-project/sluice/internal/cli/topic"
)

func TestGroupCommands(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command)
	s.Run("group list")
	s.Run("topic create orders --partitions 2")
	s.Run("topic create other")
	var records strings.Builder
	for i := range 20 {
		fmt.Fprintf(&records, `{"value":"v%d","partition":%d,"timestamp":%d}`+"\n", i, i%2, 1700000000000+i*1000)
	}
	s.Feed(records.String(), "topic produce orders --json")
	code, stdout, stderr := s.On(t.Context(), "", "topic", "consume", "orders", "--group", "billing", "--until-end", "--format", `%v\n`)
	if code != 0 || strings.Count(stdout, "\n") != 20 {
		t.Fatalf("code %d, %d lines, %s", code, strings.Count(stdout, "\n"), stderr)
	}
	s.Feed(`{"value":"more","partition":1,"timestamp":1700000030000}`, "topic produce orders --json")
	s.Run("group list")
	s.Run("group list --json")
	s.Run("group describe billing")
	s.Run("group describe billing --json")
	s.Run("group describe nosuch")
	s.Run("group reset billing --topic orders --to start --dry-run")
	s.Run("group reset billing --topic orders --by -3")
	s.Run("group reset billing --topic orders --by -100 --json")
	s.Run("group reset billing --topic orders --to 4")
	s.Run("group reset billing --topic orders --to 99 --dry-run")
	s.Run("group reset billing --topic orders --to 2023-11-14T22:13:25Z")
	s.Run("group reset billing --topic other --by 1")
	s.Run("group reset fresh --topic orders --to end")
	s.Run("group reset billing --topic nosuch --to end")
	s.Run("group reset billing --topic orders")
	s.Run("group reset billing --topic orders --to x")
	s.Run("group reset billing --to end")
	s.Run("group describe billing")
	s.Run("group delete fresh")
	s.Run("group delete fresh --json")
	s.Run("group delete billing --json")
	s.Run("group list")
	clitest.Golden(t, "group", s.Log.String())
}

// The command refuses to reset a group with members, and says why.
func TestActiveGroupIsNotReset(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command)
	s.Run("topic create orders")
	s.Feed("one\n", "topic produce orders")
	ctx, cancel := context.WithCancel(t.Context())
	reading := make(chan struct{})
	done := make(chan int)
	go func() {
		code, _ := s.Onto(ctx, &clitest.SignalWriter{Want: "one\n", Seen: func() { close(reading) }},
			"topic", "consume", "orders", "--group", "g", "--format", `%v\n`)
		done <- code
	}()
	<-reading
	code, _, stderr := s.On(t.Context(), "", "group", "reset", "g", "--topic", "orders", "--to", "start")
	want := "sluice: group \"g\" is Stable, with 1 member: stop them first, since they would go on where they are\n"
	if code != 1 || stderr != want {
		t.Errorf("code %d, %q, want %q", code, stderr, want)
	}
	if code, stdout, _ := s.On(t.Context(), "", "group", "describe", "g"); code != 0 || !strings.Contains(stdout, "sluice 127.0.0.1") || !strings.Contains(stdout, "Stable") {
		t.Errorf("code %d:\n%s", code, stdout)
	}
	if code, _, stderr := s.On(t.Context(), "", "group", "delete", "g"); code != 1 || stderr != "sluice: group \"g\" has members: stop them first\n" {
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
		if code, _, stderr := clitest.Line(t.Context(), "", []*cobra.Command{topic.Command(), group.Command()}, strings.Fields(test.args)...); code != test.code || stderr != test.want {
			t.Errorf("%s: code %d, %q\nwant %d, %q", test.args, code, stderr, test.code, test.want)
		}
	}
}
