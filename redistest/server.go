package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Persist is how a server keeps its data over a restart.
type Persist string

// What a server may keep.
const (
	// Nothing, the default, loses everything in a restart.
	Nothing Persist = ""
	// EverySecond writes each command to the append-only file, synced once a second.
	EverySecond Persist = "everysec"
	// Always writes and syncs each command before it is answered.
	Always Persist = "always"
)

// Options say how a server runs.
type Options struct {
	// Persist is what survives Restart. Default Nothing.
	Persist Persist
	// Config is a configuration file, which the server may rewrite, as sentinels do.
	// Default none.
	Config string
	// Args are further arguments, such as "--maxmemory", "10mb".
	Args []string
}

// How long a server may take to come up or to end, and how often a free port is
// looked for.
const (
	startTimeout = 30 * time.Second
	maxStarts    = 10
)

// Server is a running Redis or Valkey.
type Server struct {
	t       testing.TB
	folder  string
	port    int
	options Options

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// Start runs a server until the test ends. Without redis-server and valkey-server
// in PATH the test fails: such a test proves nothing when it is left out.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	s := &Server{t: t, folder: t.TempDir(), options: options}
	t.Cleanup(s.end)
	if options.Config != "" {
		if err := os.WriteFile(s.config(), []byte(options.Config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range maxStarts {
		// Below the ports that systems give to outgoing connections, so that none takes
		// it while the server is down.
		s.port = 20_000 + rand.IntN(10_000)
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// find returns the path of a program of Redis or Valkey.
func find(t testing.TB, what string) string {
	t.Helper()
	for _, family := range []string{"redis-", "valkey-"} {
		if path, err := exec.LookPath(family + what); err == nil {
			return path
		}
	}
	t.Fatalf("neither redis-%s nor valkey-%[1]s is in PATH: make need-redis, or sudo apt-get install redis-server", what)
	return ""
}

// start runs the server and waits until it answers.
func (s *Server) start() error {
	persist := []string{"--appendonly", "no"}
	if s.options.Persist != Nothing {
		persist = []string{"--appendonly", "yes", "--appendfsync", string(s.options.Persist)}
	}
	args := append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.folder, "--save", ""}, persist...)
	if s.options.Config != "" {
		args = append([]string{s.config()}, args...)
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	process := exec.CommandContext(context.Background(), find(s.t, "server"), append(args, s.options.Args...)...)
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.process, s.ended = process, ended
	go func() {
		defer close(ended)
		_ = process.Wait() // it is killed: how it ended says nothing
	}()
	if err := s.awaitReady(); err != nil {
		s.end()
		tail, _ := os.ReadFile(s.log())
		return fmt.Errorf("the server at port %d: %w; its log:\n%s", s.port, err, tail[max(0, len(tail)-4096):])
	}
	return nil
}

func (s *Server) config() string { return filepath.Join(s.folder, "server.conf") }

func (s *Server) log() string { return filepath.Join(s.folder, "server.log") }

func (s *Server) awaitReady() error {
	deadline := time.After(startTimeout)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errors.New("it ended")
		case <-deadline:
			return err
		case <-again.C:
		}
	}
}

// ping returns nil once the server answers anything but that it is loading.
func (s *Server) ping() error {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // it was only read
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err == nil && strings.HasPrefix(answer, "-LOADING") {
		err = errors.New("it is loading")
	}
	return err
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// HostPort returns both parts of Addr.
func (s *Server) HostPort() (host, port string) { return "127.0.0.1", strconv.Itoa(s.port) }

// URL is where clients find the server: redis://host:port.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Kill ends the server as a crash does, with SIGKILL.
func (s *Server) Kill() {
	s.t.Helper()
	s.end()
}

func (s *Server) end() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill() // it may have ended
	<-s.ended
	s.process = nil
}

// Restart kills the server if it runs, and starts it with the same data at the same
// address.
func (s *Server) Restart() {
	s.t.Helper()
	s.end()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the server's process, as a machine that hangs: connections stay open
// and nothing is answered until Continue.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Continue ends a Pause.
func (s *Server) Continue() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if s.process == nil {
		s.t.Fatal("the server does not run")
	}
	if err := s.process.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// Cli returns what redis-cli prints, without the line's end. A command that fails,
// or is answered with an error, fails the test.
func (s *Server) Cli(args ...string) string {
	s.t.Helper()
	command := exec.CommandContext(context.Background(), find(s.t, "cli"), append([]string{"-e", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}, args...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v: %s%s", strings.Join(args, " "), err, output, stderr.Bytes())
	}
	return strings.TrimRight(string(output), "\n")
}
