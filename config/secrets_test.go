package config_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/config"
)

var (
	secretA = secretOf('a')
	secretB = secretOf('b')
	secretC = secretOf('c')
)

func secretOf(letter byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{letter}, 32))
}

// fileOfSecrets has secrets of both kinds.
func fileOfSecrets(t *testing.T) string {
	t.Helper()
	return write(t, "webhook:\n  secrets: ["+secretA+", "+secretB+"]\n  target_secrets:\n    api.example.com:443:\n      - "+
		secretC+"\n    open: []\n  max_response_bytes: 1MiB\n  idle_connections: 7\n")
}

func TestWebhookSettings(t *testing.T) {
	path := fileOfSecrets(t)
	c, err := config.Load(nil, []string{"SLUICE_CONFIG=" + path})
	if err != nil {
		t.Fatal(err)
	}
	options := c.Webhook.Options()
	if got, want := options.Secrets, []string{secretA, secretB}; !reflect.DeepEqual(got, want) {
		t.Errorf("secrets of the file: %d, want %d in their order", len(got), len(want))
	}
	if got, want := options.TargetSecrets, map[string][]string{"api.example.com:443": {secretC}, "open": nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("secrets of targets: %d, want %d", len(got), len(want))
	}
	if options.MaxResponseBytes != 1<<20 || options.IdleConnections != 7 {
		t.Errorf("max_response_bytes %d, idle_connections %d, want 1048576 and 7", options.MaxResponseBytes, options.IdleConnections)
	}
	for key, line := range map[string]int{"webhook.secrets": 2, "webhook.target_secrets.api.example.com:443": 5, "webhook.idle_connections": 8} {
		if got, want := c.Source(key), fmt.Sprintf("file %s:%d", path, line); got != want {
			t.Errorf("the source of %s is %q, want %q", key, got, want)
		}
	}
	c, err = config.Load(nil, []string{"SLUICE_CONFIG=" + path, "SLUICE_WEBHOOK_SECRETS=" + secretB + " ," + secretC})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Webhook.Options().Secrets, []string{secretB, secretC}; !reflect.DeepEqual(got, want) {
		t.Errorf("secrets of the environment: %d, want %d instead of the file's", len(got), len(want))
	}
}

func TestNetworksOfWebhooks(t *testing.T) {
	for file, want := range map[string]webhook.Options{
		"":                               {},
		"bulk: {webhook_allow: '::1'}\n": {Allow: []netip.Prefix{netip.MustParsePrefix("::1/128")}},
		"bulk: {webhook_allow: [127.0.0.0/8, 10.1.2.3/16], webhook_proxy: environment}\n": {
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")}, EnvironmentProxy: true,
		},
	} {
		c, err := config.Load(nil, []string{"SLUICE_CONFIG=" + write(t, file)})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Webhook.Options(); !slices.Equal(got.Allow, want.Allow) || got.EnvironmentProxy != want.EnvironmentProxy {
			t.Errorf("%s: %v and %v, want %v and %v", file, got.Allow, got.EnvironmentProxy, want.Allow, want.EnvironmentProxy)
		}
	}
}

// Others may choose where requests go only on this machine, unless the operator wants it so.
func TestInlineTargets(t *testing.T) {
	for _, test := range []struct {
		http, inline string
		want         bool
	}{
		{"127.0.0.1:8080", "", true}, {"localhost:8080", "", true}, {"[::1]:8080", "auto", true}, {"127.0.0.1:8080", "false", false},
		{":8080", "", false}, {"0.0.0.0:8080", "auto", false}, {"10.0.0.1:8080", "", false}, {"sluice.internal:8080", "", false}, {":8080", "true", true},
	} {
		c, err := config.Load(nil, []string{"SLUICE_HTTP=" + test.http, "SLUICE_BULK_INLINE_TARGETS=" + test.inline})
		if err != nil {
			t.Fatal(err)
		}
		if c.InlineTargets() != test.want {
			t.Errorf("http %s, inline_targets %q: %v, want %v", test.http, test.inline, c.InlineTargets(), test.want)
		}
	}
}

// shown reports whether a text has a part of a secret: three letters in base64.
func shown(text string) bool {
	return strings.Contains(text, "YWFh") || strings.Contains(text, "YmJi") || strings.Contains(text, "Y2Nj")
}

func TestSecretsAreNeverShown(t *testing.T) {
	c, err := config.Load(nil, []string{"SLUICE_CONFIG=" + fileOfSecrets(t)})
	if err != nil {
		t.Fatal(err)
	}
	var yaml, log bytes.Buffer
	if err := c.WriteYAML(&yaml); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  secrets: [(hidden), (hidden)] # file ", "    api.example.com:443: [(hidden)] # file ", "    open: [] # file "} {
		if !strings.Contains(yaml.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &yaml)
		}
	}
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "webhook", c.Webhook)
	inJSON, err := json.Marshal(c.Webhook)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{yaml.String(), log.String(), string(inJSON), fmt.Sprintf("%v %+v %#v %s", *c, *c, *c, c.Webhook.Secrets)} {
		if shown(text) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}

func TestTokenKeys(t *testing.T) {
	key := "HS256:" + strings.Repeat("YWFh", 10)
	path := write(t, "room:\n  token_keys:\n    - "+key+"\n    - EdDSA:"+base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n")
	for variable, want := range map[string]int{"": 2, "SLUICE_ROOM_TOKEN_KEYS=" + key: 1} {
		c, err := config.LoadGate(nil, []string{"SLUICE_CONFIG=" + path, variable})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := c.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		if len(c.Room.TokenKeys) != want || c.Room.TokenKeys[0] != key || shown(out.String()+fmt.Sprintf("%v %+v %#v", *c, *c, *c)) {
			t.Errorf("%d keys, want %d; printed:\n%s", len(c.Room.TokenKeys), want, &out)
		}
	}
}

func TestWrongSecrets(t *testing.T) {
	for _, test := range []struct{ name, file, variable, key, why string }{
		{"not one", "", "SLUICE_WEBHOOK_SECRETS=" + secretA + ",YWFhYWFh", "webhook.secrets", `number 2: not a secret: want "whsec_" and base64`},
		{"empty at the end", "", "SLUICE_WEBHOOK_SECRETS=" + secretA + ",", "webhook.secrets", "number 2: not a secret"},
		{"too short", "webhook: {secrets: [whsec_YWFh]}\n", "", "webhook.secrets", "number 1: not a secret: it has 3 bytes, want 24 to 64"},
		{"too many", "", "SLUICE_WEBHOOK_SECRETS=" + strings.Repeat(secretA+",", 11), "webhook.secrets", "12 of them: want at most 10"},
		{"of a target", "webhook: {target_secrets: {api: [" + secretA + ", whsec_YWFh]}}\n", "", "webhook.target_secrets.api", "number 2: not a secret"},
		{"name of a target", "webhook: {target_secrets: {\"a\\nb\": []}}\n", "", "webhook.target_secrets.a\nb", "want 1 to 256 printable characters"},
		{"no name", "webhook: {target_secrets: {\"\": []}}\n", "", "webhook.target_secrets.", "want the name of a target"},
		{"no list", "webhook: {secrets: " + secretA + "}\n", "", "webhook.secrets", "want a list of secrets"},
		{"list in a list", "webhook: {secrets: [[" + secretA + "]]}\n", "", "webhook.secrets", "want a secret on each line"},
		{"no list of a target", "webhook: {target_secrets: {api: " + secretA + "}}\n", "", "webhook.target_secrets.api", "want a list of secrets"},
		{"no names", "webhook: {target_secrets: [" + secretA + "]}\n", "", "webhook.target_secrets", "want a mapping"},
		{"hidden", "webhook: {secrets: [(hidden)]}\n", "", "webhook.secrets", `(hidden) is what "sluice config" prints in place of a secret`},
		{"key of no kind", "room: {token_keys: [YWFhYWFh]}\n", "", "room.token_keys", "number 1: want HS256:SECRET or EdDSA:PUBLIC-KEY"},
		{"hidden key", "room: {token_keys: [(hidden)]}\n", "", "room.token_keys", `(hidden) is what "sluice config" prints`},
		{"misspelled", "", "SLUICE_WEBHOOK_SECRET=" + secretA, "SLUICE_WEBHOOK_SECRET", "there is no such setting; the nearest is SLUICE_WEBHOOK_SECRETS"},
		{"large answers", "webhook: {max_response_bytes: 17MiB}\n", "", "webhook.max_response_bytes", `"17MiB": want from 1 to 16MiB`},
		{"no answers", "webhook: {max_response_bytes: 0}\n", "", "webhook.max_response_bytes", `"0": want from 1 to 16MiB`},
		{"a network", "bulk: {webhook_allow: [10.0.0.0/8, intern]}\n", "", "bulk.webhook_allow", `"10.0.0.0/8,intern": "intern": want networks or addresses, such as 10.0.0.0/8 or ::1`},
		{"a mapped network", "", "SLUICE_BULK_WEBHOOK_ALLOW=::ffff:10.0.0.0/104", "bulk.webhook_allow", `"::ffff:10.0.0.0/104": "::ffff:10.0.0.0/104": want networks`},
		{"a proxy", "bulk: {webhook_proxy: http://proxy}\n", "", "bulk.webhook_proxy", `"http://proxy": want off or environment`},
		{"many connections", "webhook: {idle_connections: 65537}\n", "", "webhook.idle_connections", `"65537": want from 1 to 65,536`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := config.Load(nil, []string{"SLUICE_CONFIG=" + write(t, test.file), test.variable})
			var wrong *config.Error
			if !errors.As(err, &wrong) || wrong.Key != test.key || !strings.HasPrefix(wrong.Why, test.why) {
				t.Fatalf("%v, want an *Error of %s: %s", err, test.key, test.why)
			}
			if shown(err.Error()) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// The mark of a hidden secret may stay in the file if the environment has the secrets.
func TestHiddenSecretsInTheFileAreOverridden(t *testing.T) {
	file := write(t, "webhook: {secrets: [(hidden)]}\n")
	if _, err := config.Load(nil, []string{"SLUICE_CONFIG=" + file, "SLUICE_WEBHOOK_SECRETS=" + secretA}); err != nil {
		t.Fatal(err)
	}
}

// Secrets have no flags: other users of the machine can read command lines.
func TestSecretsHaveNoFlag(t *testing.T) {
	set := flags(t)
	for _, s := range config.Settings() {
		if s.Secret && (s.Flag() != "" || set.Lookup(strings.ReplaceAll(s.Key, ".", "-")) != nil) {
			t.Errorf("%s has a flag", s.Key)
		}
	}
}
