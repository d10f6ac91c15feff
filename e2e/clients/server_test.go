package clients

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds an operation of a client that should be immediate.
const patience = 3 * time.Minute

// binary is the path of sluice, and scenarios that of the SDKs' program in Go; TestMain builds both.
var binary, scenarios string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sluice-clients")
	if err != nil {
		panic(err)
	}
	binary, scenarios = filepath.Join(dir, "sluice"), filepath.Join(dir, "scenarios")
	for path, of := range map[string]string{binary: "./cmd/sluice", scenarios: "./sdk/go"} {
		if out, err := exec.Command("go", "build", "-C", "../..", "-ldflags=-s", "-o", path, of).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", of, err, out)
			os.Exit(1)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// nodes returns how many processes a server has: 1, or SLUICE_NODES as a cluster with that many
// replicas.
func nodes() int {
	if os.Getenv("SLUICE_NODES") == "3" {
		return 3
	}
	return 1
}

// startServer starts a sluice that runs until the test ends, and returns the bootstrap addresses of
// Kafka clients.
func startServer(t *testing.T) string {
	t.Helper()
	if nodes() == 1 {
		ready, _, kafka := startNode(t)
		ready()
		return kafka
	}
	var peers, seeds []string
	for range nodes() {
		peers = append(peers, freeAddr(t))
	}
	var all []func()
	for i, peer := range peers {
		ready, _, kafka := startNode(t, "--cluster", "clients", "--node", fmt.Sprint(i+1), "--cluster-listen", peer, "--peers", strings.Join(peers, ","), "--state", "off")
		all, seeds = append(all, ready), append(seeds, kafka)
	}
	for _, ready := range all {
		ready()
	}
	return seeds[0]
}

// startNode starts one process. It returns a function that waits until the process is ready, and
// the addresses for HTTP and for Kafka clients. A node of a cluster is ready when it also knows the others, and
// coordinates its share of the groups and no more: a group that moves later would read again what it has not committed.
func startNode(t *testing.T, args ...string) (await func(), api, kafka string) {
	t.Helper()
	api, kafka = freeAddr(t), freeAddr(t)
	log := must(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	logged := func() []byte { return must(os.ReadFile(log.Name()))(t) }
	command := exec.Command(binary, append([]string{"serve", "--data", t.TempDir(), "--http", api, "--kafka", kafka}, args...)...)
	command.Env = append(os.Environ(), "SLUICE_CLUSTER_SECRET=a secret of the clients' tests")
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = log.Close()
		if text := logged(); t.Failed() {
			t.Logf("the server's log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return func() {
		t.Helper()
		eventually(t, "the server is ready", func() bool { return ready("http://" + api + "/readyz") })
		if !slices.Contains(args, "--cluster") {
			return
		}
		eventually(t, "the node knows all", func() bool { return strings.Count(get(t, "http://"+api+"/v1/cluster"), `"alive":true`) == nodes() })
		eventually(t, "the node has its share of the groups", func() bool {
			share := slotsOf(logged())
			return share == 32/nodes() || share == 32/nodes()+1
		})
	}, api, kafka
}

var slotsLogged = regexp.MustCompile(`msg="coordinates groups" slots=(\d+)`)

// slotsOf returns how many of the 32 slots of groups a node has, by its log.
func slotsOf(log []byte) (slots int) {
	if lines := slotsLogged.FindAllSubmatch(log, -1); len(lines) > 0 {
		slots, _ = strconv.Atoi(string(lines[len(lines)-1][1])) // digits
	}
	return slots
}

func ready(url string) bool {
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// The ports of servers are below the system's ephemeral ports, and above those of
// internal/testkit/ports, which is in another module. None is given twice.
const firstPort, portsCount = 30_000, 2_000

var nextPort = func() *atomic.Int64 {
	var next atomic.Int64
	next.Store(rand.Int64N(portsCount)) // the last run's connections may linger
	return &next
}()

// freeAddr returns an address that nothing listens on. It connects, and does not listen itself: a
// process that another test starts just then would have a copy of the listener for a moment.
func freeAddr(t *testing.T) string {
	t.Helper()
	for tries := 0; ; tries++ {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+nextPort.Add(1)%portsCount)
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return addr
		}
		if err == nil {
			conn.Close()
		}
		if tries == 1000 {
			t.Fatalf("no free port: %v", err)
		}
	}
}

// eventually waits until is returns true.
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

// run runs a program that must succeed, and returns its output. The program bounds its own waits.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
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

// must returns a value whose error must be nil.
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

// pointer returns a pointer to a string.
func pointer(text string) *string { return &text }

// beside runs a function concurrently with the test until stop is called or the test ends.
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
