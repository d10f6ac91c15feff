package ops

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// The budget is what is set, or follows from the machine or its container, whichever has less; each kind of what
// clients send has an eighth, and no more than 256 MiB.
func TestMemoryBudget(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	if got := SetMemoryBudget(1 << 30); got != 1<<30 || got.Share() != 128<<20 || debug.SetMemoryLimit(-1) != 768<<20 {
		t.Errorf("the budget of 1 GiB is %d, with shares of %d and a limit of %d", got, got.Share(), debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(1 << 30)
	if got := SetMemoryBudget(0); got != 1<<30 || debug.SetMemoryLimit(-1) != 1<<30 {
		t.Errorf("the budget is %d, and Go's limit %d, want that of GOMEMLIMIT", got, debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got := SetMemoryBudget(0); int64(got)/4*3 != debug.SetMemoryLimit(-1) && got != unknownMemory || got.Share() > 256<<20 {
		t.Errorf("the budget of this machine is %d, with shares of %d and a limit of %d", got, got.Share(), debug.SetMemoryLimit(-1))
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	machine := file("meminfo", "MemTotal:       2097152 kB\nMemFree: 1 kB\n")
	for text, want := range map[string]int64{"max\n": 2 << 30, "1073741824\n": 1 << 30, "9073741824\n": 2 << 30} {
		if got := machineMemory(machine, file("memory.max", text)); got != want {
			t.Errorf("the memory of a container with %q is %d, want %d", text, got, want)
		}
	}
	if got := machineMemory(dir, dir); got != 0 {
		t.Errorf("without files the memory is %d, want 0", got)
	}
}
