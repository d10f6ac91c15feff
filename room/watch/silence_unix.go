//go:build unix && !linux

package watch

import "syscall"

// limitSilence does nothing: the system's limit applies.
func limitSilence(syscall.RawConn) {}
