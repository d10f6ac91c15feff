package config_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/config"
)

// fieldNames returns the names of a struct's fields, in lower case.
func fieldNames(value any) map[string]bool {
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
		names[strings.ToLower(field.Name)] = true
	}
	return names
}

// same reports whether two configs differ in their sources at most.
func same(a, b *config.Config) bool {
	return a.DataDir == b.DataDir && a.HTTP.String() == b.HTTP.String() && a.Log == b.Log && a.Pprof == b.Pprof &&
		a.DiskReserve == b.DiskReserve && reflect.DeepEqual(a.Bulk, b.Bulk) && reflect.DeepEqual(a.Webhook, b.Webhook) &&
		a.State == b.State && reflect.DeepEqual(a.Room, b.Room) && reflect.DeepEqual(a.Gate, b.Gate)
}

func TestWriteYAMLSaysWhereValuesComeFrom(t *testing.T) {
	file := write(t, "bulk:\n  window: 500ms\n  types:\n    webhook:\n      workers: 50\n")
	c, err := config.Load(flags(t, "--http", ":9000", "--config", file), []string{"SLUICE_BULK_WORKERS=7"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"data: sluice-data # default\n",
		"http: [':9000'] # flag --http\n",
		"log:\n  level: info # default\n",
		"pprof: false # default\n",
		"disk_reserve: 256MiB # default\n",
		"  requests_per_second: 10000 # default\n",
		"  window: 500ms # file " + file + ":2\n",
		"  workers: 7 # environment SLUICE_BULK_WORKERS\n",
		"  backoff_cap: 1m # default\n",
		"  types:\n    webhook:\n      workers: 50 # file " + file + ":5\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

// The printed file gives the same config.
func TestWriteYAMLRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		environ := []string{
			"SLUICE_DATA=" + rapid.StringMatching(`[ -~äß]{1,20}`).Draw(rt, "data"),
			"SLUICE_LOG_LEVEL=" + rapid.SampledFrom([]string{"debug", "info", "warn", "error"}).Draw(rt, "level"),
			"SLUICE_DISK_RESERVE=" + rapid.SampledFrom([]string{"1MiB", "1048577", "3GB", "1.5GiB"}).Draw(rt, "reserve"),
			"SLUICE_BULK_RETENTION=" + time.Duration(rapid.Int64Min(0).Draw(rt, "retention")).String(),
			"SLUICE_BULK_REQUESTS_PER_SECOND=" + rapid.SampledFrom([]string{"0", "0.25", "1e6", "12345.678"}).Draw(rt, "rate"),
			"SLUICE_BULK_WORKERS=" + rapid.StringMatching(`[1-9][0-9]{0,3}`).Draw(rt, "workers"),
		}
		c, err := config.Load(nil, environ)
		if err != nil {
			rt.Fatal(err)
		}
		checkRoundTrip(t, rt, c)
	})
}

func hasSecrets(c *config.Config) bool {
	for _, secrets := range c.Webhook.TargetSecrets {
		if len(secrets) > 0 {
			return true
		}
	}
	return len(c.Webhook.Secrets)+len(c.Room.TokenKeys) > 0 || strings.Contains(c.State.String(), "(hidden)") || c.Gate.Challenge.Secret != ""
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkRoundTrip(t *testing.T, f failer, c *config.Config) {
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		f.Fatalf("print: %v", err)
	}
	again, err := config.Load(nil, []string{"SLUICE_CONFIG=" + write(t, out.String())})
	if hasSecrets(c) { // they are not printed
		if err == nil || !strings.Contains(err.Error(), "(hidden) is what") {
			f.Fatalf("a file with hidden secrets was read: %v\n%s", err, &out)
		}
		return
	}
	if err != nil {
		f.Fatalf("read what was printed: %v\n%s", err, &out)
	}
	if !same(c, again) {
		f.Fatalf("printed:\n%s\nread %+v\nwant %+v", &out, again, c)
	}
}

// A file gives an error at worst, and a config that was read can be printed.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"", "---\n", "http: 127.0.0.1:1\n", "bulk: {workers: 3, window: 1s}\n", "log: &a {level: info}\n",
		"bulk:\n  types:\n    echo: {workers: 2}\n    email:send:\n", "bulk: &b {types: *b}\n", "log: &l {log: *l}\n",
		"<<: {http: x}\n", "? [a]\n: b\n", "data: 'it''s # here'\n", "data: !!binary aGVsbG8=\n", "- 1\n", "pprof: true\n...\n",
		"webhook:\n  secrets:\n    - " + secretA + "\n  target_secrets: {a: [], b: [" + secretB + "]}\n", "webhook: {secrets: [&s x, *s], target_secrets: {}}\n",
		"state: redis://u:pw@h:1/2\n", "state: unix:///r.sock\n", "room: {trusted_proxies: [10.0.0.1, '::/0'], cors_origins: '*'}\n",
		"room:\n  rooms:\n    a: {mode: teller, capacity: 2, grace: 0s, opens_at: 2030-01-31T09:00:00+09:00, routes: [{path: /a/*}, {host: b.c, method: GET}]}\n" +
			"    b: {mode: park, batch: 3, interval: 1m30s, stay: 1h, bind_tickets: true, bypass: []}\n",
		"gate: {http: ':1', room: a, upstream: 'http://b'}\n",
		"gate:\n  http: ':1'\n  sites:\n    - {hosts: [a.b, '*.c'], room: a, upstream: 'http://d', waiting_status: 503, pass_clients: 3, returns: [/paid], rules: [{path: /e/*}, {cookie: 'f=1', room: g}]}\n    - {}\n",
		"bulk:\n  requests_per_second: 0\n  retention: 0\n", "data: \"yes\"\nhttp: ':0'\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		c, err := config.Load(nil, []string{"SLUICE_CONFIG=" + write(t, content)})
		if err == nil {
			checkRoundTrip(t, t, c)
		}
	})
}

func TestReferenceIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := config.WriteReference(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatalf("%v: run make generate", err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatal("docs/settings.md is not what config.WriteReference writes: run make generate")
	}
}
