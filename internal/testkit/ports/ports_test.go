package ports

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTakeGivesEachPortOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 10 {
		for _, port := range Take(t, 7) {
			if seen[port] {
				t.Errorf("port %d was given twice", port)
			}
			seen[port] = true
			listener, err := net.Listen("tcp", Addr(port))
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
		}
	}
}

// A port is free for a server at once, also while other tests start processes.
func TestTakenPortsAreFreeWhileProcessesStart(t *testing.T) {
	var over atomic.Bool
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for !over.Load() {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 500 {
		t.Run("port", func(t *testing.T) {
			listener, err := net.Listen("tcp", Addrs(t, 1)[0])
			if err != nil {
				t.Fatal(err)
			}
			listener.Close()
		})
	}
	over.Store(true)
	starting.Wait()
}

// holder is the environment variable that makes this test program print the ports of
// its first block and wait.
const holder = "SLUICE_TEST_PORTS_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holder) != "" {
		if err := lockBlock(); err != nil {
			panic(err)
		}
		fmt.Println(Addr(pool.free[0]))
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

// Programs that run at once hold different blocks.
func TestTwoProgramsShareNoBlock(t *testing.T) {
	seen := map[string]bool{}
	for range 5 {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), holder+"=1")
		stdin, err := program.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stdin.Close(); _ = program.Wait() })
		buffer := make([]byte, 100)
		n, err := stdout.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		addr := strings.TrimSpace(string(buffer[:n]))
		if seen[addr] {
			t.Errorf("two programs hold the block of %s", addr)
		}
		seen[addr] = true
	}
}
