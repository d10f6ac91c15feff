package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/config"
)

// load reads settings as "sluice serve" does.
func load(t *testing.T, args, environment []string) *config.Config {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	c, err := config.Load(flags, environment)
	if err != nil {
		t.Fatalf("%q with %q: %v", args, environment, err)
	}
	return c
}

// The settings of the package are valid, and so are those that it shows as comments.
func TestSettingsOfThePackage(t *testing.T) {
	const file = "package/sluice.yaml"
	if c := load(t, []string{"--config", file}, nil); c.DataDir != "/var/lib/sluice" {
		t.Errorf("the data is in %s, want the folder that the unit and the package make", c.DataDir)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	shown := regexp.MustCompile(`(?m)^#(\S|  \S)`).ReplaceAllString(string(content), "$1")
	shown = strings.ReplaceAll(shown, "/etc/sluice/", folder+"/")
	for _, file := range []string{"sluice.yaml", "server.pem", "server.key", "clients-ca.pem", "admin.token"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(shown), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := load(t, []string{"--config", filepath.Join(folder, "sluice.yaml")}, nil)
	if c.Topic.Advertise.String() != "queue.example.com:9092" || c.Gate.HTTP.String() != "0.0.0.0:80" || c.State.String() == "embedded" {
		t.Errorf("the settings that %s shows as comments are not read: %+v", file, c)
	}
}
