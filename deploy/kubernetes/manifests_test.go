package kubernetes

import (
	"flag"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the manifests again")

const (
	oneFile     = "sluice.yaml"
	clusterFile = "cluster.yaml"
)

// values are those of the manifests beside the chart, and further ones whose objects are checked as well.
var values = map[string]string{
	oneFile: "",
	clusterFile: `
nodes: 3
cluster: {secret: sluice-cluster, tlsSecret: sluice-nodes-tls}
stateSecret: sluice-state
accessSecret: sluice-access
tlsSecret: sluice-tls
public: true
settings: {topic: {replicas: 3}}
`,
	"others": `
nodes: 5
cluster: {secret: sluice-cluster, insecure: true}
image: {repository: registry.example.com/sluice, tag: "1"}
imagePullSecrets: [{name: registry}]
storage: {size: 100Gi, className: fast}
networkPolicy: {enabled: false}
`,
}

// headers say in each manifest how to use it.
var headers = map[string]string{
	oneFile: `# One server, as of the chart in sluice/, by "make generate". Build the image of deploy/Dockerfile, push it to your
# registry, name it below, then:
#
#   kubectl apply -f deploy/kubernetes/sluice.yaml
#   kubectl exec sluice-1 -- sluice doctor
#
# Pods of this namespace with the label sluice-client: "true" reach it at http://sluice:8080 and, with
# Kafka clients, at sluice:9092.
`,
	clusterFile: `# Three nodes with accounts, TLS, a Redis of yours and the public part of HTTP, as of the chart in sluice/, by "make
# generate". They need these Secrets, and docs/install.md says what is in them: sluice-cluster, sluice-nodes-tls,
# sluice-state, sluice-access, sluice-tls.
#
#   kubectl apply -f deploy/kubernetes/cluster.yaml
`,
}

// render returns the objects of the chart, each with its text.
func render(t *testing.T, given string) (objects []string, err error) {
	t.Helper()
	chart, err := loader.Load("sluice")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]any{}
	if err := yaml.Unmarshal([]byte(given), &set); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "sluice", Namespace: "default"}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); text != "" && path.Ext(name) == ".yaml" {
			objects = append(objects, text+"\n")
		}
	}
	return objects, err
}

// manifests are the objects of a chart.
type manifests struct {
	services []core.Service
	settings []core.ConfigMap
	server   []apps.StatefulSet
	policies []networking.NetworkPolicy
	budgets  []policy.PodDisruptionBudget
}

// read reads objects. A field with a typing error, which Kubernetes would drop, is an error.
func read(t *testing.T, objects []string) (m manifests) {
	t.Helper()
	for _, text := range objects {
		var kind struct{ APIVersion, Kind string }
		err := yaml.Unmarshal([]byte(text), &kind)
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 Service":
			m.services, err = readInto(m.services, text)
		case "v1 ConfigMap":
			m.settings, err = readInto(m.settings, text)
		case "apps/v1 StatefulSet":
			m.server, err = readInto(m.server, text)
		case "networking.k8s.io/v1 NetworkPolicy":
			m.policies, err = readInto(m.policies, text)
		case "policy/v1 PodDisruptionBudget":
			m.budgets, err = readInto(m.budgets, text)
		default:
			t.Errorf("nobody checks objects of the kind %+v", kind)
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	return m
}

func readInto[T any](all []T, text string) ([]T, error) {
	var one T
	err := yaml.UnmarshalStrict([]byte(text), &one)
	return append(all, one), err
}

// The manifests beside the chart are those that it makes.
func TestChart(t *testing.T) {
	for name, given := range values {
		t.Run(name, func(t *testing.T) {
			objects, err := render(t, given)
			if err != nil {
				t.Fatal(err)
			}
			fits(t, read(t, objects))
			if headers[name] == "" {
				return
			}
			want := headers[name] + strings.Join(objects, "---\n")
			if *update {
				if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(name); err != nil || string(got) != want {
				t.Errorf("%s is not what the chart makes (%v): run make generate", name, err)
			}
		})
	}
}

// fits checks that objects fit each other: a port or a label without its other half is never reached.
func fits(t *testing.T, m manifests) {
	t.Helper()
	if len(m.server) != 1 || len(m.services) != 2 {
		t.Fatalf("there are %d StatefulSets and %d Services, want 1 and 2", len(m.server), len(m.services))
	}
	server := m.server[0].Spec
	pod := server.Template
	selectors := map[string]map[string]string{"the StatefulSet": server.Selector.MatchLabels}
	for _, s := range m.services {
		selectors["the Service "+s.Name] = s.Spec.Selector
	}
	for _, p := range m.policies {
		selectors["the NetworkPolicy"] = p.Spec.PodSelector.MatchLabels
	}
	for _, b := range m.budgets {
		selectors["the PodDisruptionBudget"] = b.Spec.Selector.MatchLabels
	}
	for who, labels := range selectors {
		for key, value := range labels {
			if pod.Labels[key] != value {
				t.Errorf("%s selects %s=%s, which the pod has not", who, key, value)
			}
		}
		if len(labels) == 0 {
			t.Errorf("%s selects all pods", who)
		}
	}
	if !slices.ContainsFunc(m.services, func(s core.Service) bool {
		return s.Name == server.ServiceName && s.Spec.ClusterIP == core.ClusterIPNone
	}) {
		t.Errorf("the StatefulSet is of the service %q, want the headless one", server.ServiceName)
	}
	container := pod.Spec.Containers[0]
	for _, port := range portsOf(m, container) {
		if !slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool { return p.Name == port.StrVal }) {
			t.Errorf("the container has no port %q", port.String())
		}
	}
	for _, mount := range container.VolumeMounts {
		volume := func(v core.Volume) bool { return v.Name == mount.Name }
		claim := func(c core.PersistentVolumeClaim) bool { return c.Name == mount.Name }
		if !slices.ContainsFunc(pod.Spec.Volumes, volume) && !slices.ContainsFunc(server.VolumeClaimTemplates, claim) {
			t.Errorf("the container mounts %q, which is no volume", mount.Name)
		}
	}
	if got, want := len(container.VolumeMounts), len(pod.Spec.Volumes)+len(server.VolumeClaimTemplates); got != want {
		t.Errorf("the container mounts %d volumes of %d", got, want)
	}
	nodes := func(e core.EnvVar) bool {
		return e.Name == "SLUICE_CLUSTER_PEERS" && strings.Count(e.Value, ":6222") == int(*server.Replicas)
	}
	if cluster := *server.Replicas > 1; cluster != slices.ContainsFunc(container.Env, nodes) || cluster != (len(m.budgets) == 1) {
		t.Errorf("%d nodes: want a cluster of so many, with a budget, if there is more than one", *server.Replicas)
	}
}

// portsOf returns the ports that objects name.
func portsOf(m manifests, container core.Container) []intstr.IntOrString {
	ports := []intstr.IntOrString{container.StartupProbe.HTTPGet.Port, container.LivenessProbe.HTTPGet.Port, container.ReadinessProbe.HTTPGet.Port}
	for _, s := range m.services {
		for _, p := range s.Spec.Ports {
			ports = append(ports, p.TargetPort)
		}
	}
	for _, p := range m.policies {
		for _, rule := range p.Spec.Ingress {
			for _, to := range rule.Ports {
				ports = append(ports, *to.Port)
			}
		}
	}
	return ports
}

// Values that cannot work are refused, and the error names the one that is missing.
func TestRefused(t *testing.T) {
	for given, want := range map[string]string{
		"nodes: 2":                         "nodes",
		"nodes: 3":                         "cluster.secret",
		"{nodes: 3, cluster: {secret: s}}": "cluster.tlsSecret",
		"accessSecret: s":                  "tlsSecret",
		"setings: {}":                      "setings",
		"storage: {size: 10}":              "size",
	} {
		if _, err := render(t, given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %s", given, err, want)
		}
	}
}
