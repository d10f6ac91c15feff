package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// statefulSet is what decides how the program runs. The other fields are checked in kubernetes/.
type statefulSet struct {
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
					VolumeMounts []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
			}
		}
	}
}

// The pod's settings are valid, and its data is in its volume.
func TestKubernetes(t *testing.T) {
	content, err := os.ReadFile("kubernetes/sluice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set statefulSet
	if err := yaml.Unmarshal([]byte(strings.Split(string(content), "\n---\n")[1]), &set); err != nil {
		t.Fatal(err)
	}
	of, pod := readImage(t), set.Spec.Template.Spec
	container := pod.Containers[0]
	environment := slices.Clone(of.environment)
	for _, variable := range container.Env {
		if variable.Value != "" {
			environment = append(environment, variable.Name+"="+strings.ReplaceAll(variable.Value, "$(NAMESPACE)", "default"))
		}
	}
	c := load(t, nil, environment)
	if _, err := c.Unprotected(true); err != nil {
		t.Errorf("the pod would not start: %v", err)
	}
	if folder := container.VolumeMounts[0].MountPath; !strings.HasPrefix(c.DataDir, folder+"/") {
		t.Errorf("the data is in %s, want a folder of the volume at %s", c.DataDir, folder)
	}
	if user := pod.SecurityContext.RunAsUser + ":" + pod.SecurityContext.RunAsGroup; user != of.user {
		t.Errorf("the pod runs as %s, want the image's user %s", user, of.user)
	}
	if grace := time.Duration(pod.Grace) * time.Second; grace <= c.Bulk.ShutdownGrace {
		t.Errorf("the pod is killed after %v, while it may wait %v for its jobs", grace, c.Bulk.ShutdownGrace)
	}
}
