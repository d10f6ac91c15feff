package kubernetes

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	compose "github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"sigs.k8s.io/yaml"
)

// Helm's own linter has nothing to say of the chart, with each of the values.
func TestLint(t *testing.T) {
	for name, given := range values {
		t.Run(name, func(t *testing.T) {
			var with map[string]any
			if err := yaml.Unmarshal([]byte(given), &with); err != nil {
				t.Fatal(err)
			}
			found := lint.RunAll("sluice", with, "default")
			for _, message := range found.Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
			if len(found.ChartDir) == 0 || found.HighestSeverity > support.InfoSev {
				t.Errorf("the chart in %s has the severity %d", found.ChartDir, found.HighestSeverity)
			}
		})
	}
}

// Compose's own library takes the compose files, and refuses one of the cluster without its secret.
func TestCompose(t *testing.T) {
	load := func(file string, environment ...string) (services []string, err error) {
		options, err := compose.NewProjectOptions([]string{filepath.Join("..", file)}, compose.WithEnv(environment))
		if err != nil {
			return nil, err
		}
		project, err := options.LoadProject(t.Context())
		if err != nil {
			return nil, err
		}
		return project.ServiceNames(), nil
	}
	for file, want := range map[string][]string{"compose.yaml": {"sluice"}, "compose.cluster.yaml": {"node1", "node2", "node3", "redis"}} {
		got, err := load(file, "SLUICE_CLUSTER_SECRET=a secret of tests, long enough")
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has the services %v, %v; want %v", file, got, err, want)
		}
	}
	if _, err := load("compose.cluster.yaml"); err == nil || !strings.Contains(err.Error(), "SLUICE_CLUSTER_SECRET") {
		t.Errorf("without a secret: %v, want an error that names it", err)
	}
}

// Docker's own parser and linter take the image's file.
func TestDockerfile(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.Parse(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	checks := linter.New(&linter.Config{Warn: func(rule, description, _, message string, _ []parser.Range) {
		t.Errorf("%s: %s: %s", rule, message, description)
	}})
	stages, _, err := instructions.Parse(file.AST, checks)
	if err != nil || len(stages) != 2 || stages[1].BaseName != "scratch" {
		t.Errorf("the stages are %+v, %v; want one that builds, and one from scratch", stages, err)
	}
	for _, warning := range file.Warnings {
		t.Error(warning.Short)
	}
}
