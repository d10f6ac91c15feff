//go:build long && linux

package deploy

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// machine is a folder that programs see as their whole file system.
type machine struct {
	t    *testing.T
	root string
}

// newMachine returns an empty machine: folders, and nothing in them.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a root of its own needs root: run the tests with sudo, such as: sudo go test -tags long ./deploy")
	}
	m := &machine{t, t.TempDir()}
	if err := os.Chmod(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	m.makeFolders("proc")
	return m
}

// newDebian returns a machine with dpkg, which takes systemd for installed, and with what the
// package's scripts run. Its systemctl writes its arguments to /systemctl.log.
func newDebian(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		m.makeFolders("usr/" + name)
		if err := os.Symlink("usr/"+name, m.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"sh", "dpkg", "dpkg-deb", "dpkg-split", "tar", "rm", "diff", "ldconfig", "start-stop-daemon", "systemd-sysusers", "systemd-tmpfiles"} {
		m.copyProgram(program)
	}
	m.makeFolders("tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates", "run/systemd/system")
	m.write("var/lib/dpkg/info/systemd.list", "/.\n")
	m.write("var/lib/dpkg/status", "Package: systemd\nStatus: install ok installed\nArchitecture: all\nMaintainer: nobody\nVersion: 252\nDescription: system and service manager\n\n")
	m.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	m.write("etc/group", "root:x:0:\n")
	m.write("usr/bin/systemctl", "#!/bin/sh\necho \"$@\" >> /systemctl.log\n")
	if err := os.Chmod(m.path("usr/bin/systemctl"), 0o755); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) makeFolders(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(m.path(name), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	m.makeFolders(filepath.Dir(name))
	if err := os.WriteFile(m.path(name), []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	content, err := os.ReadFile(m.path(name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(content)
}

func (m *machine) has(name string) bool {
	_, err := os.Lstat(m.path(name))
	return err == nil
}

// copyProgram copies a program of this machine with its libraries.
func (m *machine) copyProgram(name string) {
	m.t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		m.t.Fatalf("%v: the tests of packages need Debian or a system like it", err)
	}
	libraries, _ := exec.Command("ldd", program).CombinedOutput() // it fails for a script, which has none
	for _, file := range append(regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1), program) {
		if content, err := os.ReadFile(file); err == nil {
			m.write(file, string(content))
			if err := os.Chmod(m.path(file), 0o755); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// enter returns a command line that runs another with this machine as all that it sees, as a
// user, "UID:GID".
func (m *machine) enter(user string, words ...string) []string {
	return append([]string{"/usr/bin/unshare", "--mount-proc=" + m.path("proc"), "/usr/sbin/chroot", "--userspec=" + user, m.root}, words...)
}

// command returns a command on the machine.
func (m *machine) command(user string, words ...string) *exec.Cmd {
	words = m.enter(user, words...)
	command := exec.CommandContext(m.t.Context(), words[0], words[1:]...)
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return command
}

// run runs a command as root and returns its output.
func (m *machine) run(words ...string) string {
	m.t.Helper()
	out, err := m.command("0:0", words...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// server is a running program that serves HTTP.
type server struct {
	t       *testing.T
	command *exec.Cmd
	address string
	log     strings.Builder
	ended   chan error
}

// launch starts a command that serves HTTP at an address, and does not wait. It is killed if it
// runs when the test ends.
func launch(t *testing.T, address string, command *exec.Cmd) *server {
	t.Helper()
	s := &server{t: t, command: command, address: address, ended: make(chan error, 1)}
	command.Stdout, command.Stderr = &s.log, &s.log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.ended <- command.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		for range s.ended {
		}
	})
	return s
}

// awaitReady waits until the server is ready.
func (s *server) awaitReady() {
	s.t.Helper()
	until.Succeeds(s.t, "the server is ready", func() error {
		select {
		case err := <-s.ended:
			s.t.Fatalf("the server ended as it started: %v\n%s", err, s.log.String())
		default:
		}
		response, err := http.Get("http://" + s.address + "/readyz")
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", response.Status)
		}
		return nil
	})
}

// stop stops the server as a system does, with SIGTERM.
func (s *server) stop() {
	s.t.Helper()
	err := s.command.Process.Signal(syscall.SIGTERM)
	if err == nil {
		err = <-s.ended
	}
	if err != nil {
		s.t.Errorf("stop the server: %v\n%s", err, s.log.String())
	}
}

// userOf returns a user of the machine as "UID:GID".
func (m *machine) userOf(name string) string {
	m.t.Helper()
	lines := strings.Split(m.read("etc/passwd"), "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name+":") })
	if at < 0 {
		m.t.Fatalf("there is no user %s", name)
	}
	fields := strings.Split(lines[at], ":")
	return fields[2] + ":" + fields[3]
}
