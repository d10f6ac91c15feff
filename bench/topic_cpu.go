package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of the kernel's times of a process: 100 in a second, on
// every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// The fields of a process's user and system time in /proc/PID/stat, after its name.
const (
	statUser   = 11
	statSystem = 12
)

// cpu returns the processor time that a process has used.
func (p *process) cpu() (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid)
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The name is in parentheses, and may contain any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= statSystem {
		return 0, fmt.Errorf("%s has %d fields", path, len(fields))
	}
	user, err := strconv.Atoi(string(fields[statUser]))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	system, err := strconv.Atoi(string(fields[statSystem]))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return time.Duration(user+system) * clockTick, nil
}
