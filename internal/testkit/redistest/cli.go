package redistest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Cli returns the output of redis-cli, without the line's end. A command that fails, or is answered
// with an error, fails the test.
func (s *Server) Cli(args ...string) string {
	s.t.Helper()
	output, err := s.Try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return output
}

// Try is Cli for commands that may fail.
func (s *Server) Try(args ...string) (string, error) {
	s.t.Helper()
	all := []string{"-e", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}
	if s.options.User != "" {
		all = append(all, "--no-auth-warning", "--user", s.options.User, "--pass", s.options.Password)
	}
	if s.options.TLS {
		all = append(all, "--tls", "--cacert", s.CAFile())
	}
	command := exec.CommandContext(context.Background(), find(s.t, "cli"), append(all, args...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("redis-cli %s: %w: %s%s", strings.Join(args, " "), err, output, stderr.Bytes())
	}
	return strings.TrimRight(string(output), "\n"), nil
}

// Info returns a field of INFO, such as used_memory. A missing field fails the test.
func (s *Server) Info(name string) string {
	s.t.Helper()
	text, found := s.info(name)
	if !found {
		s.t.Fatalf("INFO does not tell %s", name)
	}
	return text
}

func (s *Server) info(name string) (text string, found bool) {
	s.t.Helper()
	for line := range strings.Lines(s.Cli("INFO", "everything")) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return text, true
		}
	}
	return "", false
}

// Calls returns how often the server has run a command, such as "evalsha", since it was started.
func (s *Server) Calls(command string) int64 {
	s.t.Helper()
	text, _ := s.info("cmdstat_" + strings.ToLower(command))
	text, _ = strings.CutPrefix(text, "calls=")
	text, _, _ = strings.Cut(text, ",")
	if text == "" {
		return 0 // a command that was never called is not listed
	}
	calls, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return calls
}

// Size returns the number of keys of the server.
func (s *Server) Size() int64 {
	s.t.Helper()
	keys, err := strconv.ParseInt(s.Cli("DBSIZE"), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}
