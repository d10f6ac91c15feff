package deploy

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// compose is a compose file, with the fields of the specification that ours use.
type compose struct {
	Name     string
	Node     any `yaml:"x-node"`
	Settings any `yaml:"x-settings"`
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Build struct {
		Context, Dockerfile string
	}
	Image       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	DependsOn   []string `yaml:"depends_on"`
	Healthcheck struct {
		Test              []string
		Interval, Timeout time.Duration
		StartPeriod       time.Duration `yaml:"start_period"`
		StartInterval     time.Duration `yaml:"start_interval"`
	}
	StopGracePeriod time.Duration `yaml:"stop_grace_period"`
	Restart         string
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
}

// secretOfTests replaces the variables of compose files.
const secretOfTests = "a secret of tests, long enough"

// readYAML reads a file into a value that has all its fields.
func readYAML(t *testing.T, file string, value any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(regexp.MustCompile(`\$\{\w+:\?.*\}`).ReplaceAll(content, []byte(secretOfTests))))
	decoder.KnownFields(true)
	if err := decoder.Decode(value); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// environment returns the variables of a service's process.
func (s *service) environment(of image) []string {
	environment := slices.Clone(of.environment)
	for name, value := range s.Environment {
		environment = append(environment, name+"="+value)
	}
	return environment
}

// The settings of each service are valid, its ports are this machine's, and its data is kept.
func TestComposeFiles(t *testing.T) {
	of := readImage(t)
	for _, file := range []string{"compose.yaml", "compose.cluster.yaml"} {
		var project compose
		readYAML(t, file, &project)
		for name, s := range project.Services {
			for variable, value := range s.Environment {
				if strings.HasSuffix(variable, "_SECRET") && value != secretOfTests {
					t.Errorf("%s: %s has a secret that everybody knows, in %s: want ${%[3]s:?…}", file, name, variable)
				}
			}
			for _, port := range s.Ports {
				if !strings.HasPrefix(port, "127.0.0.1:") {
					t.Errorf("%s: %s publishes %s to other machines", file, name, port)
				}
			}
			for _, volume := range s.Volumes {
				source, _, _ := strings.Cut(volume, ":")
				if _, declared := project.Volumes[source]; !declared {
					t.Errorf("%s: %s names the volume %s, which is not declared", file, name, source)
				}
			}
			if s.Image != "sluice" {
				continue
			}
			c := load(t, nil, s.environment(of))
			if _, err := c.Unprotected(true); err != nil {
				t.Errorf("%s: %s would not start: %v", file, name, err)
			}
			if !slices.ContainsFunc(s.Volumes, func(v string) bool { return strings.HasSuffix(v, ":"+c.DataDir) }) {
				t.Errorf("%s: %s keeps its data, in %s, in no volume", file, name, c.DataDir)
			}
			if s.StopGracePeriod <= c.Bulk.ShutdownGrace {
				t.Errorf("%s: %s is killed after %v, while it may wait %v for its jobs", file, name, s.StopGracePeriod, c.Bulk.ShutdownGrace)
			}
		}
	}
}
