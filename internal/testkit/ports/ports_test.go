package ports

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
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
