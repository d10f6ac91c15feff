package kill

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/kafka"
)

// asExample is the environment variable that makes the test binary run the example.
const asExample = "SLUICE_AS_EXAMPLE"

// Main is the TestMain of an example whose main function is main.
func Main(m *testing.M, main func()) {
	if os.Getenv(asExample) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Kills returns how often the tests kill: 10 times, more with SLUICE_LONG.
func Kills() int {
	if os.Getenv("SLUICE_LONG") != "" {
		return 50
	}
	return 10
}

// Broker starts a broker that runs until the test ends, and returns its address.
func Broker(t *testing.T) string {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := filestore.Open(t.TempDir(), filestore.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, store.Close()) })
	broker, err := broker.New(store, topic.Config{}, broker.WithLogger(log))
	if err != nil {
		t.Fatal(err)
	}
	edge := kafka.NewServer(broker, kafka.Options{Addr: "127.0.0.1:0", Logger: log})
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, broker.Stop(context.Background())) })
	if err := edge.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, edge.Stop(context.Background())) })
	return edge.Addr()
}

func check(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// Program is an example that is run repeatedly with the same arguments.
type Program struct {
	t    *testing.T
	args []string
	out  *os.File // the output of all runs
	cmd  *exec.Cmd
}

// New returns the example with arguments, not yet started. It is killed when the test ends.
func New(t *testing.T, args ...string) *Program {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{t: t, args: args, out: out}
	t.Cleanup(func() {
		if p.cmd != nil {
			p.Kill()
		}
		check(t, out.Close())
	})
	return p
}

// Start starts the program.
func (p *Program) Start() {
	p.t.Helper()
	p.cmd = exec.CommandContext(p.t.Context(), os.Args[0], p.args...)
	p.cmd.Env = append(os.Environ(), asExample+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.t.Output()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// Kill kills the program with SIGKILL, unless it has ended.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

// Run runs the program to its end.
func (p *Program) Run() {
	p.t.Helper()
	p.Start()
	err := p.cmd.Wait()
	p.cmd = nil
	if err != nil {
		p.t.Fatalf("%v: %v", p.args, err)
	}
}

// Work waits until the program has printed about 20 more lines, and a moment longer.
func (p *Program) Work() {
	p.t.Helper()
	begun := len(p.Lines())
	p.Until(func(lines []string) bool { return len(lines) > begun+20 })
	<-time.After(rand.N(20 * time.Millisecond))
}

// Until waits until the output is enough.
func (p *Program) Until(enough func(lines []string) bool) {
	p.t.Helper()
	until.Succeeds(p.t, strings.Join(p.args, " "), func() error {
		if lines := p.Lines(); !enough(lines) {
			return fmt.Errorf("it has printed %d lines", len(lines))
		}
		return nil
	})
}

// Lines returns the output of all runs.
func (p *Program) Lines() []string {
	p.t.Helper()
	data, err := os.ReadFile(p.out.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	return strings.Split(strings.TrimSuffix(string(whole), "\n"), "\n")
}
