package bench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clockOfProcess is the kind of clock that a process has for the processor time of all its threads: CPUCLOCK_SCHED
// of Linux.
const clockOfProcess = 2

func (p *process) cpu() (time.Duration, error) { return cpuOf(p.command.Process.Pid) }

// cpuOf returns the processor time that a process has used. /proc/PID/stat has it in steps of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|clockOfProcess), &used); err != nil {
		return 0, fmt.Errorf("the processor time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
