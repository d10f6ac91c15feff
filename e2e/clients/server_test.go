package clients

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a client may take for what should come at once.
const patience = 30 * time.Second

// binary is the sluice that TestMain builds.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sluice-clients")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sluice: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// nodes is how many processes a server is: 1, or SLUICE_NODES of a cluster, which
// keep that many replicas of all.
func nodes() int {
	if os.Getenv("SLUICE_NODES") == "3" {
		return 3
	}
	return 1
}

// startServer starts a sluice that lives as long as the test, and returns where
// Kafka clients connect first.
func startServer(t *testing.T) string {
	t.Helper()
	if nodes() == 1 {
		ready, kafka := startNode(t)
		ready()
		return kafka
	}
	var peers, seeds []string
	for range nodes() {
		peers = append(peers, freeAddr(t))
	}
	var all []func()
	for i, peer := range peers {
		ready, kafka := startNode(t, "--cluster", "clients", "--node", fmt.Sprint(i+1), "--cluster-listen", peer, "--peers", strings.Join(peers, ","), "--state", "off")
		all, seeds = append(all, ready), append(seeds, kafka)
	}
	for _, ready := range all {
		ready()
	}
	return seeds[0]
}

// startNode starts one process, and returns what waits until it is ready, and where
// Kafka clients connect.
func startNode(t *testing.T, args ...string) (await func(), kafka string) {
	t.Helper()
	http, kafka := freeAddr(t), freeAddr(t)
	var log bytes.Buffer
	command := exec.Command(binary, append([]string{"serve", "--data", t.TempDir(), "--http", http, "--kafka", kafka}, args...)...)
	command.Env = append(os.Environ(), "SLUICE_CLUSTER_SECRET=a secret of the clients' tests")
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("the server's log:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	return func() {
		t.Helper()
		eventually(t, "the server is ready", func() bool { return ready("http://" + http + "/readyz") })
	}, kafka
}

func ready(url string) bool {
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Ports of servers are below those that the system gives to connections and to
// listeners without a port, so that none takes one between its choice and its use; and
// none is given twice.
const firstPort, portsCount = 12_000, 20_000

var nextPort = func() *atomic.Int64 {
	var next atomic.Int64
	next.Store(rand.Int64N(portsCount)) // other test programs run beside this one
	return &next
}()

// freeAddr returns an address where nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	for tries := 0; ; tries++ {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+nextPort.Add(1)%portsCount)
		listener, err := net.Listen("tcp", addr)
		if err == nil {
			listener.Close()
			return addr
		}
		if tries == 1000 {
			t.Fatal(err)
		}
	}
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// run runs a program that must succeed, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out[max(0, len(out)-8000):])
	}
	return string(out)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %.500q, want %.500q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// must returns a value that came without an error.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// numbered returns the texts "value from" to "value to-1".
func numbered(from, to int) (texts []string) {
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint("value ", i))
	}
	return texts
}

// pointer returns a pointer to a text.
func pointer(text string) *string { return &text }

// beside runs a function beside the test until it is told to stop, at the latest
// with the test.
func beside(t *testing.T, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
