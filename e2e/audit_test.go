package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// acts returns the entries of lines of the audit trail, without those of the server itself and of the start of the test.
func acts(t *testing.T, lines []byte) (acts []string) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		var e struct {
			Token, Edge, Operation, Outcome string
			Resources                       []string
			Data                            json.RawMessage // of an event
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Data != nil {
			if err := json.Unmarshal(e.Data, &e); err != nil {
				t.Fatal(err)
			}
		}
		if e.Edge != "server" {
			acts = append(acts, strings.Join(append([]string{e.Token, e.Edge, e.Operation, e.Outcome}, e.Resources...), " "))
		}
	}
	return acts
}

// missing is an error if a trail lacks any of the acts.
func missing(t *testing.T, trail string, want []string) error {
	t.Helper()
	got := acts(t, []byte(trail))
	for _, act := range want {
		if !slices.Contains(got, act) {
			return fmt.Errorf("%q is not among %q", act, got)
		}
	}
	return nil
}

// Commands of several tokens are in the file and in the topic of the audit trail, which an operator cannot read; secrets
// are in neither, wherever they were sent.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	s := withAccounts(t, "--bulk-inline-targets", "true")
	s.start()
	operator, producer := s.token("ops", access.Operator), s.token("till", access.Producer)
	run := func(token string, args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), binary, args...)
		command.Env = append(os.Environ(), "SLUICE_TOKEN="+token)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	const planted = "a-secret-of-a-job"
	s.as(operator, "POST", "/v1/actions", `{"id":"a","tenant":"acme","type":"webhook","target":{"name":"shop","url":"https://user:`+planted+`@192.0.2.1/?key=`+planted+`"}}`)
	s.as(operator, "POST", "/v1/actions/a/jobs?note="+planted, `{"payload":"`+planted+`"}`)
	for _, of := range []struct {
		token string
		args  []string
		fails bool
	}{
		{operator, []string{"topic", "create", "orders", "--brokers", s.kafka}, false},
		{producer, []string{"topic", "create", "more", "--brokers", s.kafka}, true},
		{operator, []string{"token", "revoke", "till", "--server", s.url("")}, true},
		{operator, []string{"topic", "consume", "sluice.audit", "--until-end", "--brokers", s.kafka}, true},
	} {
		if out, err := run(of.token, of.args...); (err != nil) != of.fails {
			t.Errorf("%s: %v, %s", of.args, err, out)
		}
	}
	want := []string{
		"admin http create-token allowed /v1/tokens token:ops", "admin http create-token allowed /v1/tokens token:till",
		"ops kafka CreateTopics allowed topic:orders", "till kafka CreateTopics refused topic:more",
		"ops http revoke-token refused /v1/tokens/till",
	}
	texts := map[string]string{}
	until.Succeeds(t, "the file and the topic have all", func() error {
		file, _ := os.ReadFile(filepath.Join(s.data, "audit.log")) // it has more later
		topic, _ := run(adminToken, "topic", "consume", "sluice.audit", "--until-end", "--format", `%v\n`, "--brokers", s.kafka)
		texts["file"], texts["topic"] = string(file[:bytes.LastIndexByte(file, '\n')+1]), topic
		if !strings.Contains(texts["file"], `"topic:sluice.audit"`) {
			return errors.New("the file lacks the last command")
		}
		return errors.Join(missing(t, texts["file"], want), missing(t, texts["topic"], want))
	})
	for name, text := range texts {
		for _, secret := range []string{operator, producer, adminToken, planted} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has the secret %s: %s", name, secret, text)
			}
		}
	}
	s.terminate()
	file, err := os.ReadFile(filepath.Join(s.data, "audit.log"))
	if err != nil || !strings.Contains(string(file), `"operation":"start"`) || !strings.Contains(string(file), `"operation":"stop"`) {
		t.Errorf("%v, %s", err, file)
	}
}
