package serve

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/config"
)

// tlsOf returns an environment with TLS; the files are not read here.
func tlsOf(more ...string) []string {
	return append(more, "SLUICE_TLS_CERT_FILE=listen_test.go", "SLUICE_TLS_KEY_FILE=listen_test.go")
}

// Addresses that others than this machine reach need insecure_listen, and a warning names them.
func TestCheckListen(t *testing.T) {
	const refused = `: others than this machine reach it, and nothing authenticates them: want an address of this machine, such as 127.0.0.1:`
	for name, test := range map[string]struct {
		environ []string
		gate    bool
		err     string // begins the error
		warned  string // in the log
	}{
		"defaults":                {},
		"this machine by names":   {environ: []string{"SLUICE_HTTP=localhost:1", "SLUICE_KAFKA=[::1]:2"}},
		"http on all":             {environ: []string{"SLUICE_HTTP=:8080"}, err: `environment SLUICE_HTTP: http: ":8080"` + refused + "8080, or"},
		"http of a gate":          {environ: []string{"SLUICE_HTTP=0.0.0.0:8080"}, gate: true, err: `environment SLUICE_HTTP: http: "0.0.0.0:8080"` + refused},
		"kafka on a network":      {environ: []string{"SLUICE_KAFKA=10.0.0.1:9092"}, err: `environment SLUICE_KAFKA: kafka: "10.0.0.1:9092"` + refused + "9092, or"},
		"kafka beside a gate":     {environ: []string{"SLUICE_KAFKA=10.0.0.1:9092"}, gate: true},
		"kafka by a name":         {environ: []string{"SLUICE_KAFKA=node1:9092"}, err: `environment SLUICE_KAFKA: kafka: "node1:9092"`},
		"certificates of clients": {environ: []string{"SLUICE_HTTP=:8080", "SLUICE_KAFKA=:9092", "SLUICE_TLS_CERT_FILE=listen_test.go", "SLUICE_TLS_KEY_FILE=listen_test.go", "SLUICE_TLS_CLIENT_CA_FILE=listen_test.go"}},
		"TLS alone":               {environ: []string{"SLUICE_HTTP=:8080", "SLUICE_TLS_CERT_FILE=listen_test.go", "SLUICE_TLS_KEY_FILE=listen_test.go"}, err: `environment SLUICE_HTTP: http: ":8080"` + refused + "8080, or"},
		"tokens over TLS": {
			environ: []string{"SLUICE_HTTP=:8080", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests", "SLUICE_TLS_CERT_FILE=listen_test.go", "SLUICE_TLS_KEY_FILE=listen_test.go"},
		},
		"tokens in the clear":                   {environ: []string{"SLUICE_HTTP=:8080", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests"}, err: `environment SLUICE_HTTP: http: ":8080": others than this machine reach it, and their tokens would cross`},
		"tokens, if allowed":                    {environ: []string{"SLUICE_HTTP=:8080", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests", "SLUICE_INSECURE_LISTEN=true"}, warned: "http :8080"},
		"plain on this machine beside TLS":      {environ: tlsOf("SLUICE_KAFKA=inner=plain://127.0.0.1:9092,outer=tls://:9093", "SLUICE_HTTP=:8080", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests")},
		"plain http on this machine beside TLS": {environ: tlsOf("SLUICE_HTTP=inner=plain://127.0.0.1:8080,outer=tls://:8443", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests")},
		"plain http on all beside TLS": {
			environ: tlsOf("SLUICE_HTTP=inner=tls://127.0.0.1:8443,outer=plain://:8080", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests"),
			err:     `environment SLUICE_HTTP: http: "outer=plain://:8080": others than this machine reach it, and their tokens would cross the network in the clear: want an address of this machine, such as 127.0.0.1:8080, or tls:// there with access.admin_token`,
		},
		"plain on all beside TLS": {
			environ: tlsOf("SLUICE_KAFKA=inner=tls://127.0.0.1:9092,outer=plain://:9093", "SLUICE_ACCESS_ADMIN_TOKEN=an-admin-of-the-tests"),
			err:     `environment SLUICE_KAFKA: kafka: "outer=plain://:9093": others than this machine reach it, and their tokens would cross the network in the clear: want an address of this machine, such as 127.0.0.1:9092, or tls:// there with access.admin_token`,
		},
		"plain on all beside certificates": {
			environ: tlsOf("SLUICE_KAFKA=outer=plain://:9093", "SLUICE_TLS_CLIENT_CA_FILE=listen_test.go"), err: `environment SLUICE_KAFKA: kafka: "outer=plain://:9093"` + refused + "9092, or tls:// there",
		},
		"kafka off":           {environ: []string{"SLUICE_KAFKA=off"}},
		"allowed":             {environ: []string{"SLUICE_HTTP=[::]:1", "SLUICE_KAFKA=10.0.0.1:2", "SLUICE_INSECURE_LISTEN=true"}, warned: `settings="[http [::]:1 kafka 10.0.0.1:2]"`},
		"allowed, not needed": {environ: []string{"SLUICE_INSECURE_LISTEN=true"}},
		"the gate is public":  {environ: []string{"SLUICE_GATE_HTTP=:80", "SLUICE_GATE_ROOM=shop", "SLUICE_GATE_UPSTREAM=http://shop"}},
	} {
		settings, err := config.Load(nil, test.environ)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var log bytes.Buffer
		err = checkListen(settings, !test.gate, slog.New(slog.NewTextHandler(&log, nil)))
		var wrong *config.Error
		switch {
		case test.err == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.err != "" && (!errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), test.err) || !strings.HasSuffix(err.Error(), "insecure_listen (--insecure-listen)")):
			t.Errorf("%s: %v, want %s", name, err, test.err)
		}
		if got := log.String(); (got == "") != (test.warned == "") || !strings.Contains(got, test.warned) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: the log says %q, want %s", name, got, test.warned)
		}
	}
}
