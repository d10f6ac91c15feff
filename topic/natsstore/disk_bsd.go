//go:build darwin || freebsd

package natsstore

import (
	"io"
	"os"
	"syscall"
)

// freeSpace returns how many bytes a process without privileges can add to the file
// system that holds dir.
func freeSpace(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint64(stat.Bsize) * uint64(max(stat.Bavail, 0)), nil
}

// tryLock locks a file for this process until it is closed, as earlier releases do, or
// fails at once. The lock is not inherited by a child that is being started.
func tryLock(file *os.File) error {
	return syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
}
