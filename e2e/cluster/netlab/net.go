package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// mostNodes is the most nodes of a Net.
const mostNodes = 100

// Net is a network of nodes that exists until Close.
type Net struct {
	name   string // of this Net, the prefix of all names
	nodes  int
	subnet int

	mu      sync.Mutex
	blocked map[Way]bool
	proxies []*Proxy
	mounts  []string
}

// Way is a direction from one node to another; node 0 is the test.
type Way struct{ From, To int }

// nets counts the networks of this process.
var nets atomic.Int64

// New creates a network with nodes 1 to the given number, and removes leftovers of killed
// processes. The error names missing requirements.
func New(nodes int) (*Net, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	if nodes < 1 || nodes > mostNodes {
		return nil, fmt.Errorf("%d nodes: want 1 to %d", nodes, mostNodes)
	}
	if err := removeLeftovers(); err != nil {
		return nil, err
	}
	n := &Net{name: namePrefix(os.Getpid()) + strconv.FormatInt(nets.Add(1), 32), nodes: nodes, blocked: map[Way]bool{}}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// ready returns an error that names a missing requirement.
func ready() error {
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("network namespaces need the command ip: scripts/need.sh iproute2=ip")
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run the tests with sudo, such as: sudo go test ./e2e/cluster/")
	}
	return nil
}

// namePrefix returns the prefix of all names of a process. Names of links have at most 15 bytes.
func namePrefix(pid int) string { return "slu" + strconv.FormatInt(int64(pid), 32) + "x" }

// names matches all names; the group is the process.
var names = regexp.MustCompile(`^slu([0-9a-v]+)x[0-9a-v]+(b|[dnv][0-9]+)$`)

// pidOf returns the process that created a name.
func pidOf(name string) (pid int, ours bool) {
	match := names.FindStringSubmatch(name)
	if match == nil {
		return 0, false
	}
	number, err := strconv.ParseInt(match[1], 32, 64)
	return int(number), err == nil
}

// build creates the bridge and the namespaces. Hardware addresses are fixed, and all nodes know
// them from the start, so that none sends an ARP request.
func (n *Net) build() error {
	var err error
	if n.subnet, err = freeSubnet(); err != nil {
		return err
	}
	bridge := n.name + "b"
	commands := []string{
		"link add " + bridge + " address " + n.hardware(0) + " type bridge",
		"addr add " + n.Addr(0).String() + "/24 dev " + bridge,
		"link set " + bridge + " up",
	}
	for i := 1; i <= n.nodes; i++ {
		outer := n.name + "v" + strconv.Itoa(i)
		commands = append(commands,
			"netns add "+n.space(i),
			"link add "+outer+" type veth peer name eth0 address "+n.hardware(i)+" netns "+n.space(i),
			"link set "+outer+" master "+bridge+" up")
	}
	if err := ip("", commands...); err != nil {
		return err
	}
	for i := range n.nodes + 1 {
		commands = nil
		if i > 0 {
			commands = []string{"addr add " + n.Addr(i).String() + "/24 dev eth0", "link set eth0 up", "link set lo up"}
		}
		for j := range n.nodes + 1 {
			if j != i {
				commands = append(commands, n.neighbour(Way{i, j}, n.hardware(j)))
			}
		}
		if err := ip(n.space(i), commands...); err != nil {
			return err
		}
	}
	return nil
}

// Addr returns the address of a node.
func (n *Net) Addr(node int) netip.Addr {
	last := node
	if node == 0 {
		last = 254
	}
	return netip.AddrFrom4([4]byte{10, 231, byte(n.subnet), byte(last)})
}

// node returns the node with an address, 0 if there is none.
func (n *Net) node(addr netip.Addr) int {
	if last := int(addr.Unmap().As4()[3]); last <= n.nodes {
		return last
	}
	return 0
}

func (n *Net) hardware(node int) string { return fmt.Sprintf("02:5c:00:%02x:00:%02x", n.subnet, node) }

// nobody returns a hardware address that no node has.
func (n *Net) nobody() string { return fmt.Sprintf("02:5c:00:%02x:ff:ff", n.subnet) }

// space returns the namespace of a node; node 0 is in the test's.
func (n *Net) space(node int) string {
	if node == 0 {
		return ""
	}
	return n.name + "n" + strconv.Itoa(node)
}

// neighbour returns the command that sets where a node sends packets to another.
func (n *Net) neighbour(way Way, hardware string) string {
	device := "eth0"
	if way.From == 0 {
		device = n.name + "b"
	}
	return "neigh replace " + n.Addr(way.To).String() + " lladdr " + hardware + " dev " + device + " nud permanent"
}

// Command returns a command that runs on a node and is killed when the test ends.
func (n *Net) Command(node int, name string, args ...string) *exec.Cmd {
	if space := n.space(node); space != "" {
		name, args = "ip", append([]string{"netns", "exec", space, name}, args...)
	}
	command := exec.CommandContext(context.Background(), name, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Block blocks or unblocks packets, and the data of proxies, from one node to another.
func (n *Net) Block(way Way, blocked bool) error {
	hardware := n.hardware(way.To)
	if blocked {
		hardware = n.nobody()
	}
	if err := ip(n.space(way.From), n.neighbour(way, hardware)); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked[way] = blocked
	for _, p := range n.proxies {
		p.Hold(way, blocked)
	}
	return nil
}

// Cut blocks both ways between a node and others.
func (n *Net) Cut(node int, others ...int) error {
	for _, other := range others {
		if err := errors.Join(n.Block(Way{node, other}, true), n.Block(Way{other, node}, true)); err != nil {
			return err
		}
	}
	return nil
}

// Heal unblocks everything.
func (n *Net) Heal() error {
	n.mu.Lock()
	var ways []Way
	for way, blocked := range n.blocked {
		if blocked {
			ways = append(ways, way)
		}
	}
	n.mu.Unlock()
	for _, way := range ways {
		if err := n.Block(way, false); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the network. Processes on it must have ended.
func (n *Net) Close() error {
	for _, p := range n.proxies {
		p.Close()
	}
	return errors.Join(n.unmount(), removeNamed(func(name string) bool { return strings.HasPrefix(name, n.name) }))
}

// ip runs commands of ip in a namespace; empty: the test's.
func ip(space string, commands ...string) error {
	args := []string{"-batch", "-"}
	if space != "" {
		args = append([]string{"-netns", space}, args...)
	}
	command := exec.CommandContext(context.Background(), "ip", args...)
	command.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, "; "), err, bytes.TrimSpace(out))
	}
	return nil
}
