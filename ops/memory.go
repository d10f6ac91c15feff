package ops

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// unknownMemory is the budget where the memory of the machine is not known.
const unknownMemory = 2 << 30

// MemoryBudget is how much memory the process is meant to use, in bytes.
type MemoryBudget int64

// SetMemoryBudget makes Go collect garbage so that the process stays within a budget, as far as what it has to
// keep allows. Go's limit is three quarters of it: while garbage is collected on a busy machine, more is made. With 0 the
// budget is the memory of the machine or its container; with GOMEMLIMIT it is that, and so is Go's limit.
func SetMemoryBudget(bytes int64) MemoryBudget {
	if bytes == 0 {
		if bytes = debug.SetMemoryLimit(-1); bytes != math.MaxInt64 {
			return MemoryBudget(bytes)
		}
		if bytes = machineMemory("/proc/meminfo", "/sys/fs/cgroup/memory.max"); bytes == 0 {
			return unknownMemory
		}
	}
	debug.SetMemoryLimit(bytes / 4 * 3)
	return MemoryBudget(bytes)
}

// Share is the most memory, in bytes, for one kind of what clients send or are sent: an eighth of the budget, and
// at most 256 MiB.
func (b MemoryBudget) Share() int64 { return min(int64(b)/8, 256<<20) }

// machineMemory returns the memory of the machine, or of its container if that is less; 0: it is not known.
func machineMemory(machine, container string) (bytes int64) {
	text, _ := os.ReadFile(machine)
	for line := range strings.Lines(string(text)) {
		if size, found := strings.CutPrefix(line, "MemTotal:"); found {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 10, 64)
			bytes = kib << 10
		}
	}
	text, _ = os.ReadFile(container)
	if most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && (bytes == 0 || most < bytes) {
		bytes = most
	}
	return bytes
}
