package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// overTLS runs commands with tokens on a server with accounts and TLS.
type overTLS struct {
	*server
	ca string
}

// startOverTLS starts a server with accounts and TLS, topics only, and further settings as variables.
func startOverTLS(t *testing.T, settings ...string) overTLS {
	t.Helper()
	authority := certtest.New(t)
	served := authority.Issue("server")
	s := withAccounts(t, "--state", "off", "--tls-cert-file", served.Cert, "--tls-key-file", served.Key)
	s.env = append(s.env, settings...)
	s.launch()
	on := overTLS{s, authority.File}
	until.True(t, "the server is ready", func() bool {
		_, err := on.run(adminToken, "", "topic list --brokers "+s.kafka)
		return err == nil
	})
	return on
}

// run runs a command with a token, "" for none.
func (s overTLS) run(token, input, command string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	run := exec.CommandContext(ctx, binary, append(strings.Fields(command), "--ca", s.ca)...)
	run.Stdin = strings.NewReader(input)
	run.Env = append(run.Environ(), "SLUICE_TOKEN="+token)
	out, err := run.CombinedOutput()
	return string(out), err
}

// create makes a token and returns its secret.
func (s overTLS) create(name, flags string) string {
	s.t.Helper()
	run := exec.CommandContext(s.t.Context(), binary, append(strings.Fields("token create "+name+" "+flags+" --server https://"+s.addr), "--ca", s.ca)...)
	run.Env = append(run.Environ(), "SLUICE_TOKEN="+adminToken)
	out, err := run.Output() // the secret alone; the rest is said on stderr
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Commands use topics with a token, as far as its roles and limits go, and say what they lack.
func TestTopicCommandsWithTokens(t *testing.T) {
	t.Parallel()
	s := startOverTLS(t)
	producer := s.create("till", "--role producer --topic orders")
	consumer := s.create("mail", "--role consumer --topic orders --group mail-*")
	on := " --brokers " + s.kafka
	for _, test := range []struct {
		token, input, command string
		want                  string // in the output; "!" before it: of a command that fails
	}{
		{adminToken, "", "topic create orders", "orders"},
		{adminToken, "", "topic create payments", "payments"},
		{"", "", "topic list", "!--token-file"},
		{"sluice_unknown-unknown-unknown", "", "topic list", "!--token-file"},
		{producer, "one\n", "topic produce orders", "1 record"},
		{producer, "one\n", "topic produce payments", "!not authorized"},
		{producer, "", "topic create more", "!no right"},
		{producer, "", "topic consume orders --until-end", "!authoriz"},
		{consumer, "", "topic consume orders --until-end --group mail-1", "one"},
		{consumer, "", "topic consume orders --until-end --group other", "!authoriz"},
		{consumer, "", "group describe mail-1", "mail-1"},
		{consumer, "", "topic list", "orders"},
	} {
		out, err := s.run(test.token, test.input, test.command+on)
		want, fails := strings.CutPrefix(test.want, "!")
		if (err != nil) != fails || !strings.Contains(out, want) || test.token == consumer && strings.Contains(out, "payments") {
			t.Errorf("%s: %v, %s; want %q", test.command, err, out, test.want)
		}
	}
}
