//go:build kcat

package e2e

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// librdkafka authenticates by each mechanism; it says why it may not, and what it may not do. A token that
// is revoked ends a consumer that waits.
func TestKcatWithTokens(t *testing.T) {
	t.Parallel()
	s := startOverTLS(t)
	for _, name := range []string{"orders", "payments"} {
		if out, err := s.run(adminToken, "", "topic create "+name+" --brokers "+s.kafka); err != nil {
			t.Fatal(err, out)
		}
	}
	secret := s.create("till", "--role producer --role consumer --topic orders --group till-*")
	command := func(mechanism, password string, args ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		return exec.CommandContext(ctx, "kcat", slices.Concat([]string{
			"-b", s.kafka, "-X", "security.protocol=sasl_ssl", "-X", "ssl.ca.location=" + s.ca,
			"-X", "sasl.mechanism=" + mechanism, "-X", "sasl.username=till", "-X", "sasl.password=" + password,
		}, kcatWaits, args)...)
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		produce := command(mechanism, secret, "-P", "-t", "orders")
		produce.Stdin = strings.NewReader(mechanism + "\n")
		if out, err := produce.CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", mechanism, err, out)
		}
		if out, err := command(mechanism, secret, "-C", "-t", "orders", "-o", "-1", "-e", "-q").Output(); err != nil || string(out) != mechanism+"\n" {
			t.Errorf("%s: %v, %q", mechanism, err, out)
		}
		if out, err := command(mechanism, secret, "-L").CombinedOutput(); err != nil || !strings.Contains(string(out), `"orders"`) || strings.Contains(string(out), "payments") {
			t.Errorf("%s: the topics: %v, %s", mechanism, err, out)
		}
		if out, err := command(mechanism, secret, "-C", "-t", "payments", "-e").CombinedOutput(); err == nil || !strings.Contains(string(out), "authorization failed") {
			t.Errorf("%s: a topic without a right: %v, %s", mechanism, err, out)
		}
	}
	refused := command("SCRAM-SHA-256", "wrong", "-P", "-t", "orders")
	refused.Stdin = strings.NewReader("wrong\n")
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "SASL authentication error: unknown name or wrong secret") {
		t.Errorf("with a wrong password: %v, %s", err, out)
	}
	waits := command("SCRAM-SHA-256", secret, "-G", "till-1", "orders", "-u", "-X", "auto.offset.reset=earliest")
	waits.Stderr = &strings.Builder{}
	records, err := waits.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(records, make([]byte, len("PLAIN\n"))); err != nil {
		t.Fatal(err)
	}
	if out, err := s.run(adminToken, "", "token revoke till --server https://"+s.addr); err != nil {
		t.Fatal(err, out)
	}
	_, _ = io.Copy(io.Discard, records)
	err = waits.Wait()
	// librdkafka may crash as it ends: what counts is that kcat ends by itself, before patience does.
	if exited, ok := errors.AsType[*exec.ExitError](err); !ok || exited.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		t.Errorf("a consumer whose token was revoked ends with %v: %s", err, waits.Stderr)
	}
}

// kcat shows the JWT of a provider by PLAIN, and says that one has expired. It cannot be given a JWT for OAUTHBEARER: Debian's librdkafka is built without OIDC, and its own handler
// makes JWTs without a signature, which are refused. e2e/clients has OAUTHBEARER by librdkafka.
func TestKcatWithJWTs(t *testing.T) {
	t.Parallel()
	provider := newIdentityProvider(t)
	s := startOverTLS(t, provider.settings()...)
	if out, err := s.run(adminToken, "", "topic create orders --brokers "+s.kafka); err != nil {
		t.Fatal(err, out)
	}
	write := func(settings ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		command := exec.CommandContext(ctx, "kcat", slices.Concat([]string{
			"-b", s.kafka, "-P", "-t", "orders", "-X", "security.protocol=sasl_ssl", "-X", "ssl.ca.location=" + s.ca,
		}, kcatWaits, settings)...)
		command.Stdin = strings.NewReader("hello\n")
		out, err := command.CombinedOutput()
		return string(out), err
	}
	plain := func(life time.Duration) (string, error) {
		return write("-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=any", "-X", "sasl.password="+provider.sign("till", "idp-producer", life))
	}
	until.True(t, "the server has the keys, and kcat writes", func() bool {
		_, err := plain(time.Hour)
		return err == nil
	})
	if out, err := plain(-time.Hour); err == nil || !strings.Contains(out, "SASL authentication error") || !strings.Contains(out, "expired") {
		t.Errorf("with a JWT that has expired: %v, %s", err, out)
	}
	unsigned, err := write("-X", "sasl.mechanism=OAUTHBEARER", "-X", "enable.sasl.oauthbearer.unsecure.jwt=true", "-X", "sasl.oauthbearer.config=principal=till")
	if err == nil || !strings.Contains(unsigned, "SASL authentication error") {
		t.Errorf("with a JWT without a signature: %v, %s", err, unsigned)
	}
}
