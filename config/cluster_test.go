package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/topic"
)

// clusterValues are values of the settings of a cluster.
var clusterValues = map[string]string{
	"cluster.name": "main", "cluster.node": "1", "cluster.rack": "zone-a", "cluster.advertise": "127.0.0.1:7222",
	"cluster.peers": "127.0.0.1:6222,127.0.0.1:6223",
}

// clusterOf returns the variables that a setting of a cluster needs in addition to its own.
func clusterOf(t *testing.T, key string) []string {
	t.Helper()
	needs := map[string]string{
		"cluster.name": "main", "cluster.node": "1", "cluster.peers": clusterValues["cluster.peers"], "state": "off",
	}
	if key != "cluster.secret_file" {
		needs["cluster.secret"] = strings.Repeat("s", 16)
	}
	if slices.Contains([]string{"cluster.cert_file", "cluster.key_file", "cluster.ca_file"}, key) {
		for _, other := range []string{"cluster.cert_file", "cluster.key_file", "cluster.ca_file"} {
			needs[other] = write(t, "a")
		}
	}
	delete(needs, key)
	return variables(needs)
}

// variables are settings as an environment has them.
func variables(of map[string]string) []string {
	var environ []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		environ = append(environ, "SLUICE_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))+"="+of[key])
	}
	return environ
}

func TestCluster(t *testing.T) {
	secret := write(t, "  "+strings.Repeat("x", 16)+"\n")
	c, err := config.Load(flags(t, "--cluster", "main", "--node", "2", "--rack", "b", "--peers", "n1:6222, n2:6222",
		"--cluster-listen", ":6222", "--cluster-insecure", "--cluster-secret-file", secret, "--state", "redis://r:6379",
		"--kafka", ":9092", "--topic-advertise", "n2:9092", "--http", "0.0.0.0:8080"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Cluster.On() || c.Cluster.Node != 2 || c.Cluster.Rack != "b" || fmt.Sprint(c.Cluster.Peers) != "n1:6222,n2:6222" {
		t.Errorf("%+v", c.Cluster)
	}
	if text, err := c.Cluster.SharedSecret(); err != nil || text != strings.Repeat("x", 16) {
		t.Errorf("the secret is %q, %v", text, err)
	}
	if want := (topic.Advertised{Host: "n2", Port: 9092, HTTP: "http://n2:8080", Rack: "b"}); !reflect.DeepEqual(c.Advertised(), want) {
		t.Errorf("%+v, want %+v", c.Advertised(), want)
	}
	c, err = config.Load(flags(t, "--http", "127.0.0.1:81", "--cluster-advertise-http", "web:80"), append(clusterOf(t, ""), "SLUICE_KAFKA=127.0.0.1:9999"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (topic.Advertised{Host: "127.0.0.1", Port: 9999, HTTP: "http://web:80"}); !reflect.DeepEqual(c.Advertised(), want) {
		t.Errorf("%+v, want %+v", c.Advertised(), want)
	}
}

func TestWrongClusters(t *testing.T) {
	short := "hunter2hunter2"
	for name, test := range map[string]struct {
		change   map[string]string // of a cluster that is right; "" takes a setting away
		key, why string
	}{
		"no name":         {map[string]string{"cluster.name": ""}, "cluster.node", "want cluster.name too"},
		"odd name":        {map[string]string{"cluster.name": "a b"}, "cluster.name", `"a b": want 1 to 64 letters`},
		"no node":         {map[string]string{"cluster.node": ""}, "cluster.node", "a node of a cluster needs a number of its own, from 1"},
		"node 0":          {map[string]string{"cluster.node": "0"}, "cluster.node", "a node of a cluster needs a number of its own, from 1"},
		"node -1":         {map[string]string{"cluster.node": "-1"}, "cluster.node", `"-1": want more than 0`},
		"large node":      {map[string]string{"cluster.node": "3000000000"}, "cluster.node", `"3000000000": want from 1 to 2,147,483,647`},
		"odd rack":        {map[string]string{"cluster.rack": "a,b"}, "cluster.rack", `"a,b": want 1 to 64 letters`},
		"no peers":        {map[string]string{"cluster.peers": ""}, "cluster.peers", "want the addresses of the other nodes"},
		"only itself":     {map[string]string{"cluster.peers": "127.0.0.1:6222"}, "cluster.peers", "want the addresses of the other nodes"},
		"peer of no port": {map[string]string{"cluster.peers": "n1"}, "cluster.peers", `"n1": "n1": want host:port that others can connect to`},
		"peer of no host": {map[string]string{"cluster.peers": ":6222"}, "cluster.peers", `":6222": ":6222": want host:port that others`},
		"no secret":       {map[string]string{"cluster.secret": ""}, "cluster.secret", "the nodes of a cluster need one secret"},
		"short secret":    {map[string]string{"cluster.secret": short}, "cluster.secret", "it has 14 characters: want at least 16"},
		"hidden secret":   {map[string]string{"cluster.secret": "(hidden)"}, "cluster.secret", `(hidden) is what "sluice config" prints`},
		"two secrets":     {map[string]string{"cluster.secret_file": write(t, strings.Repeat("x", 20))}, "cluster.secret", "want this or cluster.secret_file, not both"},
		"short file":      {map[string]string{"cluster.secret": "", "cluster.secret_file": write(t, short)}, "cluster.secret_file", "it has 14 characters"},
		"large file":      {map[string]string{"cluster.secret": "", "cluster.secret_file": write(t, strings.Repeat(short, 1000))}, "cluster.secret_file", "/"},
		"half of TLS":     {map[string]string{"cluster.cert_file": write(t, "a")}, "cluster.key_file", "want all of cluster.cert_file"},
		"other machines":  {map[string]string{"cluster.peers": "n1:6222"}, "cluster.cert_file", "nodes on different machines need TLS"},
		"listens to all":  {map[string]string{"cluster.listen": ":6222"}, "cluster.cert_file", "nodes on different machines need TLS"},
		"insecure TLS": {map[string]string{"cluster.cert_file": write(t, "a"), "cluster.key_file": write(t, "b"), "cluster.ca_file": write(t, "c"), "cluster.insecure": "true"},
			"cluster.insecure", "want it without cluster.cert_file"},
		"kafka off":          {map[string]string{"kafka": "off", "state": "redis://r:6379"}, "kafka", "a node of a cluster serves topics"},
		"kafka on all":       {map[string]string{"kafka": ":9092"}, "kafka", `":9092": others are told to connect to it: want topic.advertise`},
		"kafka at any port":  {map[string]string{"kafka": "127.0.0.1:0"}, "kafka", `"127.0.0.1:0": others are told`},
		"advertises no host": {map[string]string{"topic.advertise": ":9092"}, "topic.advertise", `":9092": ":9092": want host:port that others`},
		"a listener on all": {map[string]string{"kafka": "inner=plain://127.0.0.1:9092,outer=plain://127.0.0.1:0", "topic.advertise": "inner=n1:9092"}, "kafka",
			`"outer=plain://127.0.0.1:0": others are told to connect to it: want topic.advertise with a host:port that clients reach (--topic-advertise outer=node1.example.com:9092)`},
		"http at any port": {map[string]string{"http": "127.0.0.1:0"}, "http", `"127.0.0.1:0": operators are told`},
		"embedded state":   {map[string]string{"state": "embedded"}, "state", "bulk actions and rooms of a cluster are in a Redis"},
		"odd http":         {map[string]string{"cluster.advertise_http": "0.0.0.0:80"}, "cluster.advertise_http", `"0.0.0.0:80": want host:port`},
	} {
		t.Run(name, func(t *testing.T) {
			of := map[string]string{
				"cluster.name": "main", "cluster.node": "1", "cluster.peers": "127.0.0.1:6222,127.0.0.1:6223",
				"cluster.secret": strings.Repeat("s", 16), "state": "off",
			}
			maps.Copy(of, test.change)
			_, err := config.Load(nil, variables(of))
			var wrong *config.Error
			if !errors.As(err, &wrong) || wrong.Key != test.key || !strings.HasPrefix(wrong.Why, test.why) {
				t.Fatalf("%v, want an *Error of %s: %s", err, test.key, test.why)
			}
			if strings.Contains(err.Error(), short) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

// A server with nothing to serve, and a gate without rooms, are refused.
func TestStateOff(t *testing.T) {
	for _, wrong := range [][]string{
		{"SLUICE_STATE=off", "SLUICE_KAFKA=off"},
		{"SLUICE_STATE=off", "SLUICE_GATE_HTTP=127.0.0.1:1", "SLUICE_GATE_ROOM=shop", "SLUICE_GATE_UPSTREAM=http://a"},
	} {
		if _, err := config.Load(nil, wrong); err == nil {
			t.Errorf("%v was taken", wrong)
		}
	}
	if c, err := config.Load(nil, []string{"SLUICE_STATE=off"}); err != nil || !c.State.IsOff() || c.State.IsEmbedded() {
		t.Errorf("%v", err)
	}
	if _, err := config.LoadGate(nil, []string{"SLUICE_STATE=off"}); err == nil {
		t.Error("a gate took no rooms")
	}
}

// The secret of a cluster is never printed.
func TestClusterSecretIsHidden(t *testing.T) {
	environ := clusterOf(t, "")
	c, err := config.Load(nil, environ)
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := c.WriteYAML(&printed); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{printed.String(), fmt.Sprintf("%v %+v %#v", c, c.Cluster, c.Cluster)} {
		if strings.Contains(text, "ssssssss") {
			t.Errorf("the secret is in %s", text)
		}
	}
}
