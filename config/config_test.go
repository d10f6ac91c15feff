package config_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/config"
)

// write writes a config file and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flags returns the parsed flags.
func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	set := pflag.NewFlagSet("sluice", pflag.ContinueOnError)
	config.Flags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestDefaults(t *testing.T) {
	c, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "sluice-data" || c.HTTP.String() != "127.0.0.1:8080" || c.DiskReserve != 256<<20 || c.Pprof {
		t.Errorf("defaults %+v", c)
	}
	if c.Bulk.RequestsPerSecond != 10_000 || c.Bulk.Workers != 10 || c.Bulk.Window != time.Second {
		t.Errorf("defaults of bulk %+v", c.Bulk)
	}
	if source := c.Source("http"); source != "default" {
		t.Errorf("the source of http is %q, want default", source)
	}
}

// Later sources override earlier ones, and leave the settings that they do not set.
func TestOrderOfSources(t *testing.T) {
	file := write(t, "http: 0.0.0.0:1\ndata: from-file\nbulk:\n  workers: 1\n  fetch_batch: 1\n  window: 2s\n")
	environ := []string{"SLUICE_HTTP=0.0.0.0:2", "SLUICE_BULK_WORKERS=2", "SLUICE_DATA=", "HTTP=0.0.0.0:9"}
	c, err := config.Load(flags(t, "--http", "0.0.0.0:3", "--config", file, "--pprof"), environ)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		key, got, want, source string
	}{
		{"http", c.HTTP.String(), "0.0.0.0:3", "flag --http"},
		{"bulk.workers", strings.Repeat("w", c.Bulk.Workers), "ww", "environment SLUICE_BULK_WORKERS"},
		{"bulk.window", c.Bulk.Window.String(), "2s", "file " + file + ":6"},
		{"data", c.DataDir, "from-file", "file " + file + ":2"},
		{"log.format", c.Log.Format, "text", "default"},
	}
	for _, test := range tests {
		if got, source := test.got, c.Source(test.key); got != test.want || source != test.source {
			t.Errorf("%s = %q by %q, want %q by %q", test.key, got, source, test.want, test.source)
		}
	}
	if !c.Pprof {
		t.Error("--pprof without a value did not set it")
	}
}

func TestFileByEnvironment(t *testing.T) {
	file, other := write(t, "data: one\n"), write(t, "data: two\n")
	environ := []string{"SLUICE_CONFIG=" + file}
	for args, want := range map[string]string{"": "one", "--config=" + other: "two"} {
		c, err := config.Load(flags(t, strings.Fields(args)...), environ)
		if err != nil {
			t.Fatal(err)
		}
		if c.DataDir != want {
			t.Errorf("with flags %q, data = %q, want %q", args, c.DataDir, want)
		}
	}
}

func TestSpecialZeros(t *testing.T) {
	c, err := config.Load(flags(t, "--bulk-requests-per-second=0", "--bulk-retention=0", "--config", write(t, "bulk:\n  alpha: 0\n")),
		[]string{"SLUICE_BULK_SHUTDOWN_GRACE=0"})
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Bulk; b.RequestsPerSecond >= 0 || b.Retention >= 0 || b.Alpha >= 0 || b.ShutdownGrace >= 0 {
		t.Fatalf("requests_per_second %v, retention %v, alpha %v, shutdown_grace %v: want all negative, which bulk takes for none",
			b.RequestsPerSecond, b.Retention, b.Alpha, b.ShutdownGrace)
	}
}

func TestSettingsOfOneJobType(t *testing.T) {
	file := write(t, "bulk:\n  types:\n    email:send:\n      workers: 3\n      backoff_base: 2m\n    a.b: {job_timeout: 5s}\n    none:\n")
	c, err := config.Load(flags(t, "--config", file), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := bulk.TypeConfig{Workers: 3, Reserve: 0.5, JobTimeout: 30 * time.Second, MaxAttempts: 4, BackoffBase: 2 * time.Minute, BackoffCap: 2 * time.Minute}
	if got := c.Bulk.For("email:send"); got != want {
		t.Errorf("email:send has %+v, want %+v", got, want)
	}
	if got := c.Bulk.For("a.b").JobTimeout; got != 5*time.Second {
		t.Errorf("a.b has a timeout of %v, want 5s", got)
	}
}

// Every setting can be set in each way that it has, and its default is a valid value.
func TestEverySettingInEveryWay(t *testing.T) {
	for _, s := range config.Settings() {
		value := s.Default
		if s.Secret {
			value = secretA
		}
		if s.Key == "room.token_keys" {
			value = "HS256:" + secretA
		}
		if value == "" || s.Key == "cluster.node" { // An empty variable is as if it were not set.
			value = valueOf(t, s.Key)
		}
		if s.Flag() != "" {
			checkSource(t, s.Key, "flag --"+s.Flag(), flags(t, "--"+s.Flag()+"="+value))
		}
		if s.Variable() != "" {
			checkSource(t, s.Key, "environment "+s.Variable(), nil, s.Variable()+"="+value)
		}
	}
}

// valueOf is a value of a setting that is empty by default.
func valueOf(t *testing.T, key string) string {
	switch {
	case strings.HasSuffix(key, "trusted_proxies"), key == "bulk.webhook_allow":
		return "10.0.0.0/8,::1"
	case key == "room.cors_origins":
		return "https://shop.example.com"
	case key == "access.grants":
		return "name:jwt:alice admin,claim:tills producer topic=orders*"
	case key == "access.cert_name_rules":
		return "RULE:^CN=([a-z]+),OU=tills$/$1/,DEFAULT"
	case key == "gate.room":
		return "shop"
	case key == "http_hosts":
		return "sluice.internal,*"
	case key == "gate.upstream":
		return "http://127.0.0.1:3000"
	case key == "gate.theme":
		return "accent=#2f5d62,dark-accent=#8cc5c0"
	case key == "gate.challenge_provider":
		return "turnstile"
	case key == "gate.challenge_fallback":
		return "open"
	case slices.Contains([]string{"gate.upstream_host", "gate.brand", "gate.challenge_site_key", "gate.challenge_hostname"}, key):
		return "shop.example.com"
	}
	if value, ok := clusterValues[key]; ok {
		return value
	}
	return write(t, "a file of enough characters")
}

func checkSource(t *testing.T, key, want string, flags *pflag.FlagSet, environ ...string) {
	t.Helper()
	switch { // Some need each other.
	case strings.Contains(key, "tls"):
		environ = append(environ, "SLUICE_GATE_TLS_CERT="+write(t, "a"), "SLUICE_GATE_TLS_KEY="+write(t, "b"),
			"SLUICE_TLS_CERT_FILE="+write(t, "a"), "SLUICE_TLS_KEY_FILE="+write(t, "b"))
		if key != "tls.client_ca_file" {
			environ = append(environ, "SLUICE_TLS_CLIENT_CA_FILE="+write(t, "a"))
		}
	case strings.HasPrefix(key, "cluster."):
		environ = append(environ, clusterOf(t, key)...)
	case key == "access.cert_name_rules":
		environ = append(environ, "SLUICE_ACCESS_ADMIN_TOKEN="+secretA, "SLUICE_TLS_CERT_FILE="+write(t, "a"), "SLUICE_TLS_KEY_FILE="+write(t, "b"),
			"SLUICE_TLS_CLIENT_CA_FILE="+write(t, "a"))
	case key == "access.grants":
		environ = append(environ, "SLUICE_ACCESS_ADMIN_TOKEN="+secretA)
	case strings.HasPrefix(key, "access.jwt"):
		environ = append(environ, "SLUICE_ACCESS_ADMIN_TOKEN="+secretA, "SLUICE_ACCESS_JWT_ISSUER=https://login.test", "SLUICE_ACCESS_JWT_AUDIENCE=sluice",
			"SLUICE_ACCESS_JWT_KEYS=https://login.test/keys")
	case strings.Contains(key, "challenge"):
		environ = append(environ, "SLUICE_GATE_CHALLENGE_PROVIDER=turnstile", "SLUICE_GATE_CHALLENGE_SITE_KEY=k", "SLUICE_GATE_CHALLENGE_SECRET=s")
	}
	c, err := config.Load(flags, environ)
	if err != nil {
		t.Errorf("by %s: %v", want, err)
	} else if source := c.Source(key); source != want {
		t.Errorf("%s: source %q, want %q", key, source, want)
	}
}

// Every field of bulk.Config has a setting.
func TestEveryFieldOfBulkHasASetting(t *testing.T) {
	c, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fields := fieldNames(c.Bulk)
	for _, s := range config.Settings() {
		name := strings.ReplaceAll(strings.TrimPrefix(s.Key, "bulk."), "_", "")
		delete(fields, name)
	}
	delete(fields, "types")
	for field := range fields {
		t.Errorf("bulk.Config has a field %s and config no setting: add it to the schema in config/settings.go", field)
	}
	typeFields := fieldNames(bulk.TypeConfig{})
	for _, s := range config.TypeSettings() {
		delete(typeFields, strings.ReplaceAll(s.Key, "_", ""))
	}
	for field := range typeFields {
		t.Errorf("bulk.TypeConfig has a field %s and config no setting: add it to typeSchema", field)
	}
}

// wrongSettings has mistakes and their errors.
var wrongSettings = []struct {
	name, file, variable string
	args                 []string
	want                 string // FILE stands for the file's path
}{
	{name: "unknown key", file: "http: 127.0.0.1:1\nbulk:\n  worker: 3\n",
		want: "file FILE:3: bulk.worker: there is no such setting; the nearest is bulk.workers"},
	{name: "unknown section", file: "blk: 3\n",
		want: "file FILE:1: blk: there is no such setting; the nearest is data"},
	{name: "dotted key", file: "bulk.workers: 3\n",
		want: "file FILE:1: bulk.workers: want each level on a line of its own, and no dot in a key"},
	{name: "unknown key of a type", file: "bulk:\n  types:\n    echo:\n      worker: 3\n",
		want: "file FILE:4: bulk.types.echo.worker: there is no such setting; the nearest is bulk.types.echo.workers"},
	{name: "duration without a unit", file: "bulk: {window: 5}\n",
		want: `file FILE:1: bulk.window: "5": want a duration such as 500ms, 30s or 1h30m`},
	{name: "out of bulk's range", args: []string{"--bulk-window=5ms"},
		want: `flag --bulk-window: bulk.window: "5ms": want from 100ms to 1m`},
	{name: "out of bulk's range in the environment", variable: "SLUICE_BULK_WORKERS=10001",
		want: `environment SLUICE_BULK_WORKERS: bulk.workers: "10001": want from 1 to 10,000`},
	{name: "zero that would be the default", variable: "SLUICE_BULK_LEASE=0",
		want: `environment SLUICE_BULK_LEASE: bulk.lease: "0": want more than 0`},
	{name: "negative grace", variable: "SLUICE_BULK_SHUTDOWN_GRACE=-1s",
		want: `environment SLUICE_BULK_SHUTDOWN_GRACE: bulk.shutdown_grace: "-1s": want more than 0, or 0: at once`},
	{name: "negative limit", file: "bulk:\n  requests_per_second: -1\n",
		want: `file FILE:2: bulk.requests_per_second: "-1": want more than 0, or 0: no limit`},
	{name: "not a number", variable: "SLUICE_BULK_REQUESTS_PER_SECOND=NaN",
		want: `environment SLUICE_BULK_REQUESTS_PER_SECOND: bulk.requests_per_second: "NaN": want a number`},
	{name: "cap below base", file: "bulk:\n  backoff_base: 2m\n",
		want: `default: bulk.backoff_cap: "1m": want at least backoff_base`},
	{name: "types: out of range", file: "bulk:\n  types:\n    echo:\n      max_attempts: 101\n",
		want: "file FILE:4: bulk.types.echo.max_attempts: want from 1 to 100"},
	{name: "types: bad name", file: "bulk:\n  types:\n    a b: {workers: 1}\n",
		want: "file FILE:3: bulk.types.a b: want 1 to 128 of letters, digits and . _ : -"},
	{name: "types: zero", file: "bulk: {types: {echo: {workers: 0}}}\n",
		want: `file FILE:1: bulk.types.echo.workers: "0": want more than 0`},
	{name: "misspelled variable", variable: "SLUICE_BULK_WORKER=3",
		want: "environment: SLUICE_BULK_WORKER: there is no such setting; the nearest is SLUICE_BULK_WORKERS"},
	{name: "address", variable: "SLUICE_HTTP=8080",
		want: `environment SLUICE_HTTP: http: "8080": want host:port, such as 127.0.0.1:8080`},
	{name: "port", variable: "SLUICE_HTTP=:65536",
		want: `environment SLUICE_HTTP: http: ":65536": want host:port, such as 127.0.0.1:8080`},
	{name: "level", variable: "SLUICE_LOG_LEVEL=loud",
		want: `environment SLUICE_LOG_LEVEL: log.level: "loud": want debug, info, warn or error`},
	{name: "format", file: "log:\n  format: xml\n", want: `file FILE:2: log.format: "xml": want text or json`},
	{name: "bool", file: "pprof: maybe\n", want: `file FILE:1: pprof: "maybe": want true or false`},
	{name: "size", file: "disk_reserve: much\n",
		want: `file FILE:1: disk_reserve: "much": want a size such as 256MiB or 1GiB`},
	{name: "reserve too small", file: "disk_reserve: 1KiB\n",
		want: `file FILE:1: disk_reserve: "1KiB": want at least 1MiB: finishing what was accepted needs space`},
	{name: "null", file: "http:\n", want: "file FILE:1: http: want one value; without the key it has its default"},
	{name: "list", file: "bulk:\n  workers: [1]\n",
		want: "file FILE:2: bulk.workers: want one value; without the key it has its default"},
	{name: "twice", file: "http: 127.0.0.1:1\nhttp: 127.0.0.1:2\n", want: "file FILE:2: http: it is set twice"},
	{name: "scalar document", file: "hello\n",
		want: `file FILE:1: the document: want a mapping of settings, as "key: value" lines`},
	{name: "two documents", file: "pprof: true\n---\npprof: false\n",
		want: "config file FILE: want one YAML document, it has more"},
	{name: "not YAML", file: "a: b: c\n", want: "config file FILE: yaml: "},
	{name: "no file", args: []string{"--config=/nowhere/sluice.yaml"},
		want: "config file: open /nowhere/sluice.yaml: no such file or directory"},
}

func TestErrors(t *testing.T) {
	for _, test := range wrongSettings {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			path := write(t, test.file)
			if test.file != "" {
				args = append(args, "--config", path)
			}
			_, err := config.Load(flags(t, args...), []string{test.variable})
			want := strings.ReplaceAll(test.want, "FILE", path)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("error: %v\nwant:  %s", err, want)
			}
			var wrong *config.Error
			if isError := errors.As(err, &wrong); isError == strings.HasPrefix(want, "config file") {
				t.Fatalf("%v: is it an *Error: %v", err, isError)
			}
		})
	}
}

func TestFlagErrorsSayWhatIsRight(t *testing.T) {
	for arg, want := range map[string]string{
		"--bulk-workers=many": "want a whole number",
		"--data=":             "want the path of a directory",
		"--bulk-lease=30":     "want a duration such as 500ms, 30s or 1h30m",
	} {
		set := pflag.NewFlagSet("sluice", pflag.ContinueOnError)
		set.SetOutput(&bytes.Buffer{})
		config.Flags(set)
		if err := set.Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}

func TestLargeFile(t *testing.T) {
	path := write(t, "# "+strings.Repeat("x", 1<<20)+"\n")
	_, err := config.Load(nil, []string{"SLUICE_CONFIG=" + path})
	if err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Fatalf("error: %v, want one that names the bound", err)
	}
}
