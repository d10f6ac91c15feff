//go:build cluster

package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// TestMain also runs the processes that tests start on nodes.
func TestMain(m *testing.M) {
	if role := os.Getenv("NETLAB_ROLE"); role != "" {
		if err := roles[role](os.Getenv("NETLAB_ADDR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaks.Main(m)
}

// roles are the programs of such processes.
var roles = map[string]func(addr string) error{
	"echo": echo,
	"ask": func(addr string) error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return ask(conn)
	},
	"print": func(addr string) error { // each datagram on a line
		conn, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		for buffer := make([]byte, 100); ; {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return err
			}
			fmt.Println(string(buffer[:n]))
		}
	},
	"leave": func(string) error { // a network that is not removed
		n, err := New(1)
		if err != nil {
			return err
		}
		dir, err := n.Disk(1 << 20)
		if err != nil {
			return err
		}
		// It must not get the signal that ends it with its parent: the parent may miss it.
		sleeper := exec.Command("ip", "netns", "exec", n.space(1), "sleep", "600")
		if err := sleeper.Start(); err != nil {
			return err
		}
		fmt.Println(n.space(1), sleeper.Process.Pid, dir)
		select {}
	},
}

// echo sends back what each connection sends.
func echo(addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// ask expects an echo within a second.
func ask(conn net.Conn) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len("hello")))
	return err
}

// newNet creates a network that exists until the test ends.
func newNet(t *testing.T, nodes int) *Net {
	t.Helper()
	n, err := New(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// run starts a role on a node, and returns its output after it is ready.
func run(t *testing.T, n *Net, node int, role, addr string) *bufio.Scanner {
	t.Helper()
	command := n.Command(node, os.Args[0])
	command.Env = append(os.Environ(), "NETLAB_ROLE="+role, "NETLAB_ADDR="+addr)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("%s on node %d is not ready: %q %v", role, node, lines.Text(), lines.Err())
	}
	return lines
}

// asks reports whether a node gets an echo from an address.
func asks(n *Net, node int, addr string) bool {
	command := n.Command(node, os.Args[0])
	command.Env = append(os.Environ(), "NETLAB_ROLE=ask", "NETLAB_ADDR="+addr)
	return command.Run() == nil
}

func TestNodesReachEachOtherUnlessCut(t *testing.T) {
	n := newNet(t, 3)
	addr := func(node int) string { return n.Addr(node).String() + ":7000" }
	for node := 1; node <= 3; node++ {
		run(t, n, node, "echo", addr(node))
	}
	if n.Addr(1) == n.Addr(2) || n.node(n.Addr(2)) != 2 || n.node(n.Addr(0)) != 0 {
		t.Errorf("addresses %v, %v; node %d", n.Addr(1), n.Addr(2), n.node(n.Addr(2)))
	}
	expect := func(when string, reached map[Way]bool) {
		t.Helper()
		for way, want := range reached {
			ask := func() bool { return asks(n, way.From, addr(way.To)) }
			if want { // within a second, which a busy machine may need for each part of it
				until.True(t, fmt.Sprintf("%s node %d reaches %d", when, way.From, way.To), ask)
			} else if ask() {
				t.Errorf("%s node %d reaches %d", when, way.From, way.To)
			}
		}
	}
	expect("at first", map[Way]bool{{0, 1}: true, {1, 2}: true, {2, 1}: true, {3, 1}: true})
	if err := n.Cut(1, 2, 3); err != nil {
		t.Fatal(err)
	}
	expect("with node 1 cut from the others", map[Way]bool{{0, 1}: true, {1, 2}: false, {3, 1}: false, {2, 3}: true})
	if err := n.Cut(1, 0); err != nil {
		t.Fatal(err)
	}
	expect("with node 1 cut off", map[Way]bool{{0, 1}: false, {0, 2}: true})
	if err := n.Heal(); err != nil {
		t.Fatal(err)
	}
	expect("after healing", map[Way]bool{{0, 1}: true, {1, 2}: true, {2, 1}: true, {3, 1}: true})
}

func TestOneWayIsOneWay(t *testing.T) {
	n := newNet(t, 1)
	there := n.Addr(1).String() + ":7001"
	lines := run(t, n, 1, "print", there)
	if err := n.Block(Way{1, 0}, true); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", there)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "first"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "first" {
		t.Fatalf("with the way back blocked %q came, want first", lines.Text())
	}
	if err := errors.Join(n.Heal(), n.Block(Way{0, 1}, true)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "lost"); err != nil {
		t.Fatal(err)
	}
	if err := n.Heal(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "third"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "third" {
		t.Fatalf("after the way there was blocked %q came, want third", lines.Text())
	}
}

func TestDiskIsFull(t *testing.T) {
	n := newNet(t, 1)
	dir, err := n.Disk(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 2<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing 2 MiB to a disk of 1 MiB: %v, want no space", err)
	}
}

// The next network removes the leftovers of a process that was killed.
func TestLeftoversAreRemoved(t *testing.T) {
	left := exec.Command(os.Args[0])
	left.Env = append(os.Environ(), "NETLAB_ROLE=leave")
	left.Stderr = os.Stderr
	out, err := left.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	var space, dir string
	var sleeper int
	if _, err := fmt.Sscan(lines.Text(), &space, &sleeper, &dir); err != nil {
		t.Fatalf("%q: %v", lines.Text(), err)
	}
	if err := left.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = left.Wait()
	newNet(t, 1)
	listed, err := exec.Command("ip", "netns", "list").Output()
	if err != nil || strings.Contains(string(listed), space) {
		t.Errorf("namespaces %s %v: want %s removed", listed, err, space)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the disk %s is there: %v", dir, err)
	}
	until.True(t, fmt.Sprintf("process %d ends", sleeper), func() bool { return !running(sleeper) })
}

// running reports whether a process exists and is not a zombie, which its new parent may never
// reap.
func running(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(status), ") Z ")
}

func TestNames(t *testing.T) {
	for _, pid := range []int{1, 31, 33, 4194304} {
		name := namePrefix(pid) + "1n3"
		if got, ours := pidOf(name); got != pid || !ours {
			t.Errorf("%s is of process %d (%t), want %d", name, got, ours, pid)
		}
		if len(namePrefix(pid)+"vvv100") > 15 {
			t.Errorf("%s is too long for a link", name)
		}
	}
	for _, name := range []string{"eth0", "slug", "slu", "slu-9x", "slu9x", "slu9x1n", "slurpx", "docker0"} {
		if pid, ours := pidOf(name); ours {
			t.Errorf("%s is taken for a name of process %d", name, pid)
		}
	}
}

func TestNewSaysWhatItNeeds(t *testing.T) {
	for _, nodes := range []int{0, mostNodes + 1} {
		if n, err := New(nodes); err == nil {
			n.Close()
			t.Errorf("a network of %d nodes is made", nodes)
		}
	}
}
