package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Persist is the way a server keeps its data over a restart.
type Persist string

// The ways to keep data.
const (
	// Nothing, the default, loses everything in a restart.
	Nothing Persist = ""
	// EverySecond writes each command to the append-only file, synced once a second.
	EverySecond Persist = "everysec"
	// Always writes and syncs each command before it is answered.
	Always Persist = "always"
)

// Options configure Start.
type Options struct {
	// Persist is the data that survives Restart. Default Nothing.
	Persist Persist
	// Config is a configuration file, which the server may rewrite, as sentinels do.
	// Default none.
	Config string
	// Args are further arguments, such as "--maxmemory", "10mb".
	Args []string
	// User and Password are the only account, with all rights. Default none: every client has all
	// rights.
	User, Password string
	// TLS makes the port speak TLS only, with a certificate that CAFile signs.
	TLS bool
	// Socket makes the server also listen on a unix socket: see SocketURL.
	Socket bool

	// cluster makes it a node of a cluster.
	cluster bool
}

// startTimeout bounds the start of a server. It is reached only in a failure.
const startTimeout = until.Limit

// Server is a running Redis or Valkey.
type Server struct {
	t       testing.TB
	folder  string
	socket  string // its path; "" without one
	port    int
	options Options
	node    string // its name in a cluster, once it was asked

	// authority has signed the certificate of a server with TLS.
	authority   *certtest.Authority
	certificate certtest.Files

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// Start runs a server until the test ends. Without redis-server and valkey-server in PATH the test
// fails instead of being skipped.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	s := &Server{t: t, folder: t.TempDir(), options: options}
	t.Cleanup(s.end)
	if options.Config != "" {
		if err := os.WriteFile(s.config(), []byte(options.Config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if options.TLS {
		s.authority = certtest.New(t)
		s.certificate = s.authority.Issue("redistest server")
	}
	if options.Socket {
		s.socket = filepath.Join(shortFolder(t), "redis.sock")
	}
	s.port = ports.Take(t, 1)[0]
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// shortFolder returns a folder with a short path: systems limit the path of a socket to about a
// hundred bytes, and the name of a test may be as long.
func shortFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "redis-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // only an empty socket may remain
	return folder
}

// program returns the path of redis-server or valkey-server.
func program(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("neither redis-server nor valkey-server is in PATH: make need-redis, or sudo apt-get install redis-server")
	return ""
}

// start runs the server and waits until it answers.
func (s *Server) start() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	process := exec.CommandContext(context.Background(), program(s.t), s.args()...)
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.process, s.ended = process, ended
	go func() {
		defer close(ended)
		_ = process.Wait() // it was killed: the status has no meaning
	}()
	if err := s.awaitReady(); err != nil {
		s.end()
		tail, _ := os.ReadFile(s.log())
		return fmt.Errorf("the server at port %d: %w; its log:\n%s", s.port, err, tail[max(0, len(tail)-4096):])
	}
	return nil
}

// args returns the server's arguments.
func (s *Server) args() []string {
	args := []string{"--bind", "127.0.0.1", "--dir", s.folder, "--save", ""}
	if s.options.Config != "" {
		args = append([]string{s.config()}, args...)
	}
	port := strconv.Itoa(s.port)
	if s.options.TLS {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-auth-clients", "no",
			"--tls-ca-cert-file", s.CAFile(), "--tls-cert-file", s.certificate.Cert, "--tls-key-file", s.certificate.Key)
	} else {
		args = append(args, "--port", port)
	}
	if s.options.Persist == Nothing {
		args = append(args, "--appendonly", "no")
	} else {
		args = append(args, "--appendonly", "yes", "--appendfsync", string(s.options.Persist))
	}
	if s.options.User != "" {
		args = append(args, "--user", s.options.User, "on", ">"+s.options.Password, "~*", "&*", "+@all", "--user", "default", "off")
	}
	if s.socket != "" {
		args = append(args, "--unixsocket", s.socket)
	}
	if s.options.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10))
	}
	return append(args, s.options.Args...)
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

// CAFile returns the path of the certificate, in PEM, of the authority of a server with
// Options.TLS. A process trusts it with SSL_CERT_FILE in its environment.
func (s *Server) CAFile() string { return s.authority.File }

// ping returns nil once the server answers anything except that it is loading.
func (s *Server) ping() error {
	_, err := s.call(time.Second, "PING")
	if refused, is := errors.AsType[refusal](err); is && !strings.HasPrefix(string(refused), "LOADING") {
		return nil
	}
	return err
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// HostPort returns both parts of Addr.
func (s *Server) HostPort() (host, port string) { return "127.0.0.1", strconv.Itoa(s.port) }

// URL returns the server's address: redis://host:port, with the user and password if they are
// required, and rediss: with TLS.
func (s *Server) URL() string {
	at := url.URL{Scheme: "redis", Host: s.Addr(), User: s.account()}
	if s.options.TLS {
		at.Scheme = "rediss"
	}
	return at.String()
}

// SocketURL returns the address of the server's unix socket: unix:///path.
func (s *Server) SocketURL() string {
	s.t.Helper()
	if s.socket == "" {
		s.t.Fatal("the server has no socket: start it with Options.Socket")
	}
	return (&url.URL{Scheme: "unix", Path: s.socket, User: s.account()}).String()
}

func (s *Server) account() *url.Userinfo {
	if s.options.User == "" {
		return nil
	}
	return url.UserPassword(s.options.User, s.options.Password)
}

// Kill kills the server with SIGKILL, as in a crash.
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

// Pause stops the server's process, as on a machine that hangs: connections stay open and get no
// answer until Continue.
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
