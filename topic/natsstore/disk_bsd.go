//go:build darwin || freebsd

package natsstore

import (
	"io"
	"os"
	"syscall"
)

// volume returns the size of the file system that holds dir, and how many bytes a process without
// privileges can add to it.
func volume(dir string) (total, free uint64, err error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, 0, err
	}
	size := uint64(stat.Bsize)
	return size * stat.Blocks, size * uint64(max(stat.Bavail, 0)), nil
}

// tryLock locks a file for this process until it is closed, as earlier releases do, or
// fails at once. The lock is not inherited by a child that is being started.
func tryLock(file *os.File) error {
	return syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
}
