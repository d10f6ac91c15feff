//go:build kcat

package e2e

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// librdkafka produces and consumes over TLS with a certificate, and does not without.
func TestKcatOverTLS(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	served, mine := authority.Issue("server"), authority.Issue("client")
	s := newServer(t, "--state", "off", "--tls-cert-file", served.Cert, "--tls-key-file", served.Key, "--tls-client-ca-file", authority.File)
	s.launch()
	anonymous := []string{"-X", "security.protocol=ssl", "-X", "ssl.ca.location=" + authority.File}
	known := append([]string{"-X", "ssl.certificate.location=" + mine.Cert, "-X", "ssl.key.location=" + mine.Key}, anonymous...)
	run := func(input string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		command := exec.CommandContext(ctx, "kcat", slices.Concat([]string{"-b", s.kafka, "-q"}, kcatWaits, args)...)
		command.Stdin = strings.NewReader(input)
		out, err := command.Output()
		return string(out), errors.Join(err, ctx.Err())
	}
	until.True(t, "the topic is there", func() bool {
		_, err := run("hello\n", append(known, "-P", "-t", "greetings")...)
		return err == nil
	})
	if out, err := run("", append(known, "-C", "-t", "greetings", "-o", "beginning", "-c", "1")...); err != nil || out != "hello\n" {
		t.Errorf("%v, %q", err, out)
	}
	if out, err := run("hello\n", append(anonymous, "-P", "-t", "greetings")...); err == nil {
		t.Errorf("without a certificate: %q", out)
	}
}
