package kubernetes

import (
	"os"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of sluice.yaml, in its order.
type manifests struct {
	service  core.Service
	server   apps.StatefulSet
	policy   networking.NetworkPolicy
	contents []string
}

func read(t *testing.T) (read manifests) {
	t.Helper()
	content, err := os.ReadFile("sluice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read.contents = strings.Split(string(content), "\n---\n")
	for i, object := range []any{&read.service, &read.server, &read.policy} {
		if err := yaml.UnmarshalStrict([]byte(read.contents[i]), object); err != nil {
			t.Errorf("object %d of sluice.yaml: %v", i, err)
		}
	}
	return read
}

// Every field is one that Kubernetes knows, and the objects fit each other: a field with a typing
// error would be dropped, and a port or a label without its other half is never reached.
func TestManifests(t *testing.T) {
	m := read(t)
	if len(m.contents) != 3 {
		t.Errorf("sluice.yaml has %d objects, of which 3 are checked", len(m.contents))
	}
	for got, want := range map[string]string{
		m.service.APIVersion + " " + m.service.Kind: "v1 Service",
		m.server.APIVersion + " " + m.server.Kind:   "apps/v1 StatefulSet",
		m.policy.APIVersion + " " + m.policy.Kind:   "networking.k8s.io/v1 NetworkPolicy",
	} {
		if got != want {
			t.Errorf("sluice.yaml has %s, want %s", got, want)
		}
	}
	pod := m.server.Spec.Template
	for who, labels := range map[string]map[string]string{
		"the StatefulSet": m.server.Spec.Selector.MatchLabels, "the Service": m.service.Spec.Selector, "the NetworkPolicy": m.policy.Spec.PodSelector.MatchLabels,
	} {
		for key, value := range labels {
			if pod.Labels[key] != value {
				t.Errorf("%s selects %s=%s, which the pod has not", who, key, value)
			}
		}
		if len(labels) == 0 {
			t.Errorf("%s selects all pods", who)
		}
	}
	if m.server.Spec.ServiceName != m.service.Name {
		t.Errorf("the StatefulSet is of the service %q, want %q", m.server.Spec.ServiceName, m.service.Name)
	}
	container := pod.Spec.Containers[0]
	ports := []intstr.IntOrString{
		container.StartupProbe.HTTPGet.Port, container.LivenessProbe.HTTPGet.Port, container.ReadinessProbe.HTTPGet.Port,
		*m.policy.Spec.Ingress[0].Ports[0].Port, *m.policy.Spec.Ingress[0].Ports[1].Port, m.service.Spec.Ports[0].TargetPort, m.service.Spec.Ports[1].TargetPort,
	}
	for _, port := range ports {
		if !slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool { return p.Name == port.StrVal }) {
			t.Errorf("the container has no port %q", port.String())
		}
	}
	if container.VolumeMounts[0].Name != m.server.Spec.VolumeClaimTemplates[0].Name {
		t.Errorf("the container mounts %q, want %q", container.VolumeMounts[0].Name, m.server.Spec.VolumeClaimTemplates[0].Name)
	}
}
