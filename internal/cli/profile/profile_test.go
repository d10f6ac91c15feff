package profile_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/trust"
)

// home makes a folder the user's, without variables, and returns the file of profiles.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	for _, variable := range []string{
		profile.Variable, profile.ServerVariable, profile.BrokersVariable, profile.CAVariable, profile.CertVariable, profile.KeyVariable,
	} {
		t.Setenv(variable, "")
	}
	settings, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(settings, "sluice", "profiles.json")
}

// run runs "sluice profile".
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Command(t, profile.Command, append([]string{"profile"}, args...)...)
}

// store stores two profiles.
func store(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"set shop --server https://shop.example --brokers a:9092,b:9092 --tls --ca /ca.crt --token-file /shop.token",
		"set test --server http://10.0.0.5:8080",
	} {
		if code, _, stderr := run(t, strings.Fields(line)...); code != 0 {
			t.Fatalf("%s: code %d, %s", line, code, stderr)
		}
	}
}

func TestCommands(t *testing.T) {
	file := home(t)
	s := clitest.PlainSession(t, profile.Command)
	for _, line := range []string{
		"profile list",
		"profile set shop --server https://shop.example --brokers a:9092,b:9092 --tls --token-file /shop.token",
		"profile set test --server http://10.0.0.5:8080",
		"profile list",
		"profile set shop --server https://shop.example",
		"profile list --json",
		"profile remove shop nobody",
		"profile remove shop",
		"profile list",
		"profile set 'a b' --server http://10.0.0.5:8080",
		"profile set empty",
		"profile set bad --server 10.0.0.5:8080",
		"profile set bad --brokers nowhere",
	} {
		s.Run(line)
	}
	clitest.Golden(t, "commands", s.Log.String())
	if of, err := os.Stat(file); err != nil || of.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file that only its user reads", of, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v: want the one file", left, err)
	}
}

// A file named to "set" is found from every folder.
func TestFilesAreAbsolute(t *testing.T) {
	file := home(t)
	if code, _, stderr := run(t, "set", "shop", "--server", "https://shop.example", "--token-file", "shop.token"); code != 0 {
		t.Fatal(stderr)
	}
	text, err := os.ReadFile(file)
	var all map[string]profile.Connection
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if got := all["shop"][profile.TokenFile]; err != nil || !filepath.IsAbs(got) || filepath.Base(got) != "shop.token" {
		t.Errorf("%q, %v", got, err)
	}
}

// A server and what is shown to it come from the same place.
func TestOf(t *testing.T) {
	shop := profile.Connection{
		profile.Server: "https://shop.example", profile.Brokers: "a:9092,b:9092", profile.TLS: "true", profile.CA: "/ca.crt", profile.TokenFile: "/shop.token",
	}
	tests := []struct {
		name, flags, variables string
		want                   profile.Connection
		err                    string
	}{
		{name: "nothing", want: profile.Connection{}},
		{name: "a flag", flags: "--server http://a --brokers x:1,y:2", want: profile.Connection{profile.Server: "http://a", profile.Brokers: "x:1,y:2"}},
		{name: "a flag before its variable", flags: "--server http://a", variables: "SLUICE_SERVER=http://b SLUICE_CA=/b.crt", want: profile.Connection{profile.Server: "http://a", profile.CA: "/b.crt"}},
		{name: "a profile", flags: "--profile shop", want: shop},
		{name: "a profile by its variable", variables: "SLUICE_PROFILE=shop", want: shop},
		{name: "a profile before variables of others", flags: "--profile shop", variables: "SLUICE_SERVER=http://b SLUICE_CLIENT_CERT=/b.crt", want: shop},
		{name: "a flag beside a profile", flags: "--profile test --token-file /my.token", want: profile.Connection{profile.Server: "http://10.0.0.5:8080", profile.TokenFile: "/my.token"}},
		{name: "another server leaves the variable's profile aside", flags: "--server http://a", variables: "SLUICE_PROFILE=shop", want: profile.Connection{profile.Server: "http://a"}},
		{name: "so does its variable", variables: "SLUICE_PROFILE=shop SLUICE_BROKERS=x:1", want: profile.Connection{profile.Brokers: "x:1"}},
		{name: "two places", flags: "--profile shop --server http://a", err: "leave out --server and --brokers"},
		{name: "an unknown one", flags: "--profile shoop", err: `there is no profile "shoop": there is shop, test`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			home(t)
			store(t)
			for _, variable := range strings.Fields(test.variables) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			command := &cobra.Command{}
			command.Flags().String(profile.Server, "", "")
			command.Flags().StringSlice(profile.Brokers, nil, "")
			trust.Add(command)
			if err := command.ParseFlags(strings.Fields(test.flags)); err != nil {
				t.Fatal(err)
			}
			got, err := profile.Of(command)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, %v: want the error %q", got, err, test.err)
				}
				return
			}
			if err != nil || !maps.Equal(got, test.want) {
				t.Errorf("%v, %v: want %v", got, err, test.want)
			}
		})
	}
}

// A file that somebody has edited wrongly is told, and left as it is.
func TestDamagedFile(t *testing.T) {
	for text, want := range map[string]string{
		"{":                           "is not JSON with profiles",
		"null":                        "has no object with profiles",
		`{"shop": null}`:              `profile "shop" is no object`,
		`{"shop": {"url": "x"}}`:      `"url": want one of brokers, ca, client-cert, client-key, server, tls, token-file`,
		strings.Repeat(" ", 1<<20+1):  "has more than 1048576 bytes",
		`{"shop": {"server": 8080}}`:  "is not JSON with profiles",
		`["https://shop.example"]`:    "is not JSON with profiles",
		`{"shop": {"server": "a"}} x`: "is not JSON with profiles",
	} {
		file := home(t)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, "set", "test", "--server", "http://10.0.0.5:8080")
		if code != 1 || !strings.Contains(stderr, want) || !strings.Contains(stderr, file) {
			t.Errorf("%.40q: code %d, %s", text, code, stderr)
		}
		if left, err := os.ReadFile(file); err != nil || string(left) != text {
			t.Errorf("%.40q became %.40q: %v", text, left, err)
		}
	}
}
