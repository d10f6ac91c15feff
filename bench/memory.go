package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memoryTenants is how many tenants share the jobs of Memory.
const memoryTenants = 10

// memoryVariable is set, to a folder and a number of batches, for the process that Memory starts.
const memoryVariable = "SLUICE_BENCH_MEMORY"

// Used is the memory use of a process, in bytes.
type Used struct {
	// Resident is the resident set while the jobs wait, Peak its maximum.
	Resident, Peak int64
}

// Memory measures a process that embeds sluice and holds waiting jobs: the engine runs, but the
// tenants' rate lets almost none start. The process is this program again: its main must call
// MemoryProcess first.
func (e *Environment) Memory(ctx context.Context, batches int) (used Used, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		return used, err
	}
	child := exec.CommandContext(ctx, program)
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", memoryVariable, batches, e.folder))
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := child.Output()
	if err != nil {
		return used, fmt.Errorf("memory: %w", err)
	}
	return used, json.Unmarshal(output, &used)
}

// MemoryProcess runs the process that Memory starts, and never returns there. In other processes it
// does nothing.
func MemoryProcess() {
	batches, folder, found := strings.Cut(os.Getenv(memoryVariable), ":")
	if !found {
		return
	}
	if err := holdJobs(context.Background(), folder, batches, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func holdJobs(ctx context.Context, folder, batches string, out io.Writer) (err error) {
	n, err := strconv.Atoi(batches)
	if err != nil {
		return err
	}
	queue, err := openSluice(ctx, folder, Workload{Tenants: memoryTenants, Rate: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queue.Close()) }()
	for i := range n {
		tenant := i % memoryTenants
		if err := queue.Enqueue(ctx, tenant, Batch(tenant, BatchSize)); err != nil {
			return err
		}
	}
	if err := queue.start(ctx); err != nil {
		return err
	}
	<-time.After(2 * time.Second) // the ready queue fills, the first windows pass
	used, err := memory()
	if err != nil {
		return err
	}
	if started := queue.handled.Load(); started > int64(n*BatchSize/100) {
		return fmt.Errorf("%d jobs started that should wait", started)
	}
	if received, err := queue.Waiting(ctx); err != nil || received != n*BatchSize {
		return errors.Join(err, fmt.Errorf("%d jobs enqueued, but there are %d", n*BatchSize, received))
	}
	return json.NewEncoder(out).Encode(used)
}

// memory reads the memory use of this process from the kernel.
func memory() (used Used, err error) { return memoryOf("self") }

// memoryOf reads the memory use of a process.
func memoryOf(pid string) (used Used, err error) {
	file, err := os.Open("/proc/" + pid + "/status")
	if err != nil {
		return used, err
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		field := map[string]*int64{"VmRSS": &used.Resident, "VmHWM": &used.Peak}[name]
		if field == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			return used, errors.Join(err, file.Close())
		}
		*field = kib << 10
	}
	return used, errors.Join(lines.Err(), file.Close())
}
