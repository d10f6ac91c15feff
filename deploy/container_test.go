//go:build long && cluster && redis && linux

package deploy

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/e2e/cluster/netlab"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// container is a machine with the files of the image, a network and an environment.
type container struct {
	*machine
	of          image
	net         *netlab.Net
	node        int
	environment []string
}

// newContainers returns a container for each service of a compose file that runs the image. Their
// names are those of the services, and their networks are nodes 1 and on.
func newContainers(t *testing.T, of image, net *netlab.Net, services map[string]service, names ...string) (containers []*container) {
	t.Helper()
	files := newMachine(t)
	output(t, "./image-root.sh", files.root)
	for i, name := range names {
		s := services[name]
		c := &container{newMachine(t), of, net, i + 1, s.environment(of)}
		output(t, "cp", "--archive", "--link", files.root+"/.", c.root)
		output(t, "chown", of.user, c.path("data")) // as COPY --chown does
		containers = append(containers, c)
	}
	return containers
}

func newNet(t *testing.T, nodes int) *netlab.Net {
	t.Helper()
	net, err := netlab.New(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := net.Close(); err != nil {
			t.Error(err)
		}
	})
	return net
}

// command returns a command in the container, as "docker exec" runs it.
func (c *container) command(words ...string) *exec.Cmd {
	words = c.enter(c.of.user, words...)
	command := c.net.Command(c.node, words[0], words[1:]...)
	command.Env = c.environment
	return command
}

func (c *container) run(words ...string) string {
	c.t.Helper()
	out, err := c.try(words...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// try is run for what may fail.
func (c *container) try(words ...string) (string, error) {
	out, err := c.command(words...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return string(out), nil
}

// launch starts what the image runs.
func (c *container) launch() *server {
	return launch(c.t, c.net.Addr(c.node).String()+":8080", c.command(c.of.command...))
}

// A container of compose.yaml serves with nothing but the image's files, is healthy, and keeps its
// data over a restart.
func TestCompose(t *testing.T) {
	var project compose
	readYAML(t, "compose.yaml", &project)
	c := newContainers(t, readImage(t), newNet(t, 1), project.Services, "sluice")[0]
	server := c.launch()
	server.awaitReady()
	c.run(project.Services["sluice"].Healthcheck.Test[1:]...)
	c.run("/usr/bin/sluice", "topic", "create", "orders")
	server.stop()
	server = c.launch()
	server.awaitReady()
	if got := c.run("/usr/bin/sluice", "topic", "list"); !strings.Contains(got, "orders") {
		t.Errorf("after a restart the topics are\n%s", got)
	}
	server.stop()
}

// The containers of compose.cluster.yaml become a cluster whose nodes are all healthy.
func TestComposeCluster(t *testing.T) {
	var project compose
	readYAML(t, "compose.cluster.yaml", &project)
	names := []string{"node1", "node2", "node3"}
	net := newNet(t, len(names)+1)
	nodes := newContainers(t, readImage(t), net, project.Services, names...)
	startRedis(t, net, len(names)+1, project.Services["redis"].Command)
	hosts := fmt.Sprintf("%s redis\n", net.Addr(len(names)+1))
	for i, name := range names {
		hosts += fmt.Sprintf("%s %s\n", net.Addr(i+1), name)
	}
	for _, node := range nodes {
		node.write("etc/hosts", hosts)
		defer node.launch().stop()
	}
	for i, node := range nodes {
		until.Succeeds(t, names[i]+" is healthy", func() error {
			_, err := node.try(project.Services[names[i]].Healthcheck.Test[1:]...)
			return err
		})
	}
	// A healthy node may not know yet what the others do.
	until.Succeeds(t, "a topic has a replica on each node", func() error {
		_, err := nodes[0].try("/usr/bin/sluice", "topic", "create", "orders", "--replicas", "3")
		return err
	})
	nodes[1].run("/usr/bin/sluice", "room", "create", "shop", "--capacity", "7")
	until.Succeeds(t, "another node shows the room", func() error {
		got, err := nodes[2].try("/usr/bin/sluice", "room", "show", "shop", "--json")
		if err == nil && !strings.Contains(got, `"capacity":7`) {
			t.Fatalf("another node shows the room %s", got)
		}
		return err
	})
}

// startRedis starts the Redis of a service on a node, until the test ends. The program of this
// machine stands for that of the image redis, which lets other machines connect.
func startRedis(t *testing.T, net *netlab.Net, node int, command []string) {
	t.Helper()
	redis := net.Command(node, command[0], append(command[1:], "--dir", t.TempDir(), "--bind", "0.0.0.0", "--protected-mode", "no")...)
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := redis.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = redis.Wait()
	})
}
