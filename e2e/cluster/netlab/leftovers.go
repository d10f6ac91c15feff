package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// freeSubnet returns the third byte of an unused network 10.231.x.0/24.
func freeSubnet() (int, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return 0, err
	}
	used := map[byte]bool{}
	for _, addr := range addrs {
		network, is := addr.(*net.IPNet)
		if !is {
			continue
		}
		if four := network.IP.To4(); four != nil && four[0] == 10 && four[1] == 231 {
			used[four[2]] = true
		}
	}
	for i := range 250 {
		// The search starts at a place of this process, so that concurrent ones do not collide.
		if subnet := (os.Getpid() + i) % 250; !used[byte(subnet)] {
			return subnet, nil
		}
	}
	return 0, errors.New("no network 10.231.x.0/24 is free")
}

// removeLeftovers removes the leftovers of processes that have ended.
func removeLeftovers() error {
	dead := func(name string) bool {
		pid, ours := pidOf(name)
		return ours && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	mounts, err := mountsNamed(dead)
	if err != nil {
		return err
	}
	for _, dir := range mounts {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		_ = os.Remove(dir)
	}
	return removeNamed(dead)
}

// removeNamed removes the namespaces and links whose names match, and the processes that are still
// in the namespaces.
func removeNamed(match func(name string) bool) error {
	listed, err := exec.CommandContext(context.Background(), "ip", "netns", "list").Output()
	if err != nil {
		return fmt.Errorf("ip netns list: %w", err)
	}
	var commands []string
	for line := range strings.Lines(string(listed)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if match(name) {
			endProcesses(name)
			commands = append(commands, "netns delete "+name)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, link := range links {
		if match(link.Name) {
			commands = append(commands, "link delete "+link.Name)
		}
	}
	if len(commands) == 0 {
		return nil
	}
	return ipEach(commands)
}

// ipEach runs commands of ip, even if earlier ones fail: a link is removed with its namespace.
func ipEach(commands []string) error {
	var problems []error
	for _, command := range commands {
		err := ip("", command)
		if err != nil && !strings.Contains(err.Error(), "Cannot find device") && !strings.Contains(err.Error(), "No such file") {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// endProcesses kills the processes in a namespace that is to be removed.
func endProcesses(space string) {
	listed, _ := exec.CommandContext(context.Background(), "ip", "netns", "pids", space).Output()
	for _, text := range strings.Fields(string(listed)) {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Disk creates a file system of a fixed size, in memory, and returns its folder. It exists until
// the network is closed.
func (n *Net) Disk(bytes int64) (dir string, err error) {
	if dir, err = os.MkdirTemp("", n.name+"d"); err != nil {
		return "", err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+strconv.FormatInt(bytes, 10)); err != nil {
		return "", errors.Join(fmt.Errorf("mount a disk at %s: %w", dir, err), os.Remove(dir))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mounts = append(n.mounts, dir)
	return dir, nil
}

func (n *Net) unmount() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var problems []error
	for _, dir := range n.mounts {
		problems = append(problems, syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir))
	}
	n.mounts = nil
	return errors.Join(problems...)
}

// mountsNamed returns the folders of disks whose names match.
func mountsNamed(match func(name string) bool) (dirs []string, err error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "tmpfs" && match(filepath.Base(fields[1])) {
			dirs = append(dirs, fields[1])
		}
	}
	return dirs, nil
}
