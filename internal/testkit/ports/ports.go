package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Ports are first up to first+count-1, locked in blocks. The nodes of a Redis cluster also listen
// on their port plus 10,000, which is above all blocks and below the system's own ports.
const (
	first, count = 10_000, 10_000
	blockPorts   = 20
)

// pool holds the ports of the blocks that this program has locked.
var pool struct {
	sync.Mutex
	free  []int
	locks []*os.File // locked until the program ends
}

// Take returns n free ports, reserved until the test ends.
func Take(t testing.TB, n int) []int {
	t.Helper()
	pool.Lock()
	defer pool.Unlock()
	var taken []int
	for tries := 0; len(taken) < n; tries++ {
		if tries == count {
			t.Fatalf("ports: no free port from %d to %d", first, first+count-1)
		}
		if len(pool.free) == 0 {
			if err := lockBlock(); err != nil {
				t.Fatal(err)
			}
		}
		port := pool.free[0]
		pool.free = pool.free[1:]
		if free(t.Context(), port) {
			taken = append(taken, port)
		}
	}
	t.Cleanup(func() {
		pool.Lock()
		defer pool.Unlock()
		pool.free = append(pool.free, taken...)
	})
	return taken
}

// free reports whether nobody listens on a port. It connects, and does not listen itself: a process
// that another test starts just then has a copy of each listener of this program until it runs its
// own program, and the copy keeps the port.
func free(ctx context.Context, port int) bool {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", Addr(port))
	if err == nil {
		_ = connection.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Addrs returns n free addresses at 127.0.0.1, reserved as with Take.
func Addrs(t testing.TB, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i, port := range Take(t, n) {
		addrs[i] = Addr(port)
	}
	return addrs
}

// Addr returns the address of a port at 127.0.0.1.
func Addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// lockBlock adds the ports of a block that no other program has locked.
func lockBlock() error {
	folder := filepath.Join(os.TempDir(), "sluice-test-ports")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	_ = os.Chmod(folder, 0o777) // other users' tests lock blocks as well; only the owner can change it
	var refused []error
	for _, block := range rand.Perm(count / blockPorts) {
		file, err := os.OpenFile(filepath.Join(folder, fmt.Sprint(block)), os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
				pool.locks = append(pool.locks, file)
				for i := range blockPorts {
					pool.free = append(pool.free, first+block*blockPorts+i)
				}
				return nil
			}
			_ = file.Close()
		}
		refused = append(refused, err) // locked by another program, or another user
	}
	return fmt.Errorf("ports: no free block: %w", errors.Join(refused[:min(3, len(refused))]...))
}
