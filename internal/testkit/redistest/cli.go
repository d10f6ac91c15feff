package redistest

import (
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Cli returns the answer to a command as redis-cli prints it to a file: the elements of a list on a
// line each. A command that fails, or is answered with an error, fails the test.
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
	answer, err := s.call(until.Limit, args...)
	return strings.Join(answer, "\n"), err
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
