package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// statefulSet is what decides how the program runs. The other fields are checked in kubernetes/.
type statefulSet struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Grace           int `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					RunAsUser  string `yaml:"runAsUser"`
					RunAsGroup string `yaml:"runAsGroup"`
				} `yaml:"securityContext"`
				Containers []struct {
					Env          []struct{ Name, Value string }
					VolumeMounts []mount `yaml:"volumeMounts"`
				}
			}
		}
	}
}

type mount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
}

// The pods' settings are valid, and their data is in their volumes.
func TestKubernetes(t *testing.T) {
	for _, name := range []string{"sluice.yaml", "cluster.yaml"} {
		t.Run(name, func(t *testing.T) {
			of, pod := readImage(t), readSet(t, "kubernetes/"+name).Spec.Template.Spec
			container, secrets := pod.Containers[0], t.TempDir()
			environment := slices.Clone(of.environment)
			for _, variable := range container.Env {
				value := strings.NewReplacer("$(NAMESPACE)", "default", "$(NODE)", "2", "/etc/sluice", secrets).Replace(variable.Value)
				if variable.Name == "SLUICE_STATE" {
					value = "redis://redis:6379"
				}
				if value != "" {
					environment = append(environment, variable.Name+"="+value)
				}
			}
			for _, mount := range container.VolumeMounts {
				if rest, found := strings.CutPrefix(mount.MountPath, "/etc/sluice"); found {
					fill(t, filepath.Join(secrets, rest))
				}
			}
			c := load(t, nil, environment)
			if _, err := c.Unprotected(true); err != nil {
				t.Errorf("the pod would not start: %v", err)
			}
			data := slices.IndexFunc(container.VolumeMounts, func(m mount) bool { return m.Name == "data" })
			if folder := container.VolumeMounts[data].MountPath; !strings.HasPrefix(c.DataDir, folder+"/") {
				t.Errorf("the data is in %s, want a folder of the volume at %s", c.DataDir, folder)
			}
			if user := pod.SecurityContext.RunAsUser + ":" + pod.SecurityContext.RunAsGroup; user != of.user {
				t.Errorf("the pod runs as %s, want the image's user %s", user, of.user)
			}
			if grace := time.Duration(pod.Grace) * time.Second; grace <= c.Bulk.ShutdownGrace {
				t.Errorf("the pod is killed after %v, while it may wait %v for its jobs", grace, c.Bulk.ShutdownGrace)
			}
			if cluster := name == "cluster.yaml"; cluster != (c.Cluster.Name != "") || cluster && len(c.Cluster.Peers) != 3 {
				t.Errorf("the node is of the cluster %q of %q", c.Cluster.Name, c.Cluster.Peers)
			}
		})
	}
}

func readSet(t *testing.T, file string) statefulSet {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for object := range strings.SplitSeq(string(content), "\n---\n") {
		var set statefulSet
		if strings.Contains(object, "\nkind: StatefulSet\n") {
			if err := yaml.Unmarshal([]byte(object), &set); err != nil {
				t.Fatal(err)
			}
			return set
		}
	}
	t.Fatalf("%s has no StatefulSet", file)
	return statefulSet{}
}

// fill writes the files of a Secret or a ConfigMap.
func fill(t *testing.T, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"token": strings.Repeat("t", 32), "secret": strings.Repeat("s", 32), "tls.crt": "", "tls.key": "", "ca.crt": "", "sluice.yaml": "topic:\n  replicas: 3\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
