package e2e

import (
	"crypto/tls"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// With certificates of clients, programs that have one use everything, others nothing but what is
// public; a certificate that is replaced is served without a restart.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	served, mine := authority.Issue("first"), authority.Issue("client")
	public := ports.Addrs(t, 1)[0]
	s := newServer(t, "--public", public, "--tls-cert-file", served.Cert, "--tls-key-file", served.Key, "--tls-client-ca-file", authority.File)
	s.launch()
	// get returns the status of an answer and the name of the server, or 0.
	get := func(url string, config *tls.Config) (int, string) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(url)
		if err != nil {
			return 0, ""
		}
		response.Body.Close()
		return response.StatusCode, response.TLS.PeerCertificates[0].Subject.CommonName
	}
	known := authority.Client(mine)
	until.True(t, "the server is ready", func() bool {
		status, name := get("https://"+s.addr+"/readyz", known)
		return status == http.StatusOK && name == "first"
	})
	for name, of := range map[string]struct {
		url  string
		want int
	}{
		"health without a certificate": {"https://" + s.addr + "/healthz", 0},
		"public":                       {"https://" + public + "/healthz", http.StatusOK},
	} {
		if status, _ := get(of.url, authority.Client()); status != of.want {
			t.Errorf("%s: %d, want %d", name, status, of.want)
		}
	}
	trusted := []string{"--ca", authority.File, "--client-cert", mine.Cert, "--client-key", mine.Key}
	for _, command := range []string{
		"bulk list --server https://" + s.addr, "room list --server https://" + s.addr, "topic list --brokers " + s.kafka,
		"backup --to - --server https://" + s.addr, "doctor --brokers " + s.kafka + " --server https://" + s.addr,
	} {
		args := slices.Clip(append(strings.Fields(command), "--json"))
		if out, err := exec.CommandContext(t.Context(), binary, append(args, trusted...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", command, err, out)
		}
		if !strings.Contains(command, "--server") {
			continue
		}
		for hint, some := range map[string][]string{"with --ca": nil, "with --client-cert": trusted[:2]} {
			if out, err := exec.CommandContext(t.Context(), binary, append(args, some...)...).CombinedOutput(); err == nil || !strings.Contains(string(out), hint) {
				t.Errorf("%s %v: %v, %s; want %s", command, some, err, out, hint)
			}
		}
	}
	authority.IssueTo(served, "second")
	until.True(t, "the new certificate is served", func() bool {
		_, name := get("https://"+s.addr+"/readyz", known)
		return name == "second"
	})
}
