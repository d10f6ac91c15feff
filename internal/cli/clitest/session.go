package clitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/storetest"
)

// kafkaServer serves topics in memory and returns the address. Commands that use HTTP find the
// server through the environment.
func kafkaServer(t *testing.T) string {
	t.Helper()
	broker, err := broker.New(storetest.NewMemory(), topic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(api.New(broker))
	t.Cleanup(web.Close)
	t.Setenv("SLUICE_SERVER", web.URL)
	server := kafka.NewServer(broker, kafka.Options{Addr: "127.0.0.1:0"})
	for _, start := range []func(context.Context) error{broker.Start, server.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
		defer cancel()
		for _, stop := range []func(context.Context) error{server.Stop, broker.Stop} {
			if err := stop(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return server.Addr()
}

// Session runs command lines on one server and records their output.
type Session struct {
	T       *testing.T
	Brokers string
	Log     strings.Builder
	made    []func() *cobra.Command
}

// NewSession starts a server of topics in memory.
func NewSession(t *testing.T, commands ...func() *cobra.Command) *Session {
	return &Session{T: t, Brokers: kafkaServer(t), made: commands}
}

// PlainSession returns a session of commands without --brokers.
func PlainSession(t *testing.T, commands ...func() *cobra.Command) *Session {
	return &Session{T: t, made: commands}
}

func (s *Session) commands() (all []*cobra.Command) {
	for _, command := range s.made {
		all = append(all, command())
	}
	return all
}

// On runs a command line with an input, and returns its exit code and output.
func (s *Session) On(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	if s.Brokers != "" {
		args = append(args, "--brokers", s.Brokers)
	}
	return Line(ctx, stdin, s.commands(), args...)
}

// Onto runs a command line whose output goes to w.
func (s *Session) Onto(ctx context.Context, w io.Writer, args ...string) (code int, stderr string) {
	return lineOnto(ctx, "", w, s.commands(), append(args, "--brokers", s.Brokers))
}

var (
	identity = regexp.MustCompile(`[0-9a-f]{32}`)
	took     = regexp.MustCompile(` in [0-9]+(ms|\.[0-9]s)\n`)
	seconds  = regexp.MustCompile(`"seconds":[0-9.e-]+`)
	member   = regexp.MustCompile(`sluice-[0-9a-f-]{36}`)
)

// Run records a command line and its output, without the parts that differ from run to run.
func (s *Session) Run(line string) { s.T.Helper(); s.Feed("", line) }

func (s *Session) Feed(stdin, line string) {
	s.T.Helper()
	code, stdout, stderr := s.On(s.T.Context(), stdin, Words(line)...)
	for _, clean := range []struct {
		what *regexp.Regexp
		by   string
	}{{identity, "ID"}, {took, " in TIME\n"}, {seconds, `"seconds":0.1`}, {member, "MEMBER"}} {
		stdout = clean.what.ReplaceAllString(stdout, clean.by)
	}
	fmt.Fprintf(&s.Log, "$ sluice %s\n%s", line, stdout)
	if stderr != "" {
		fmt.Fprintf(&s.Log, "# standard error\n%s", stderr)
	}
	if code != 0 {
		fmt.Fprintf(&s.Log, "# code %d\n", code)
	}
	s.Log.WriteString("\n")
}

// Words splits a command line; single quotes keep words together.
func Words(line string) []string {
	var list []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

// SignalWriter calls seen when the output has the wanted ending.
type SignalWriter struct {
	bytes.Buffer
	Want string
	Seen func()
}

func (w *SignalWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.HasSuffix(w.String(), w.Want) {
		w.Seen()
	}
	return n, err
}
