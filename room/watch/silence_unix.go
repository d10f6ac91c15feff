//go:build unix && !linux

package watch

import "syscall"

// limitSilence leaves it to the system how long sent bytes may stay unacknowledged.
func limitSilence(syscall.RawConn) {}
