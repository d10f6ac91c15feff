package filestore

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// writeAtOnce is the most buffers that the system takes in one call.
const writeAtOnce = 1024

// writeAt writes buffers one after another, without joining them, and returns how much was
// written.
func writeAt(file vfs.File, buffers [][]byte, at int64) (written int64, err error) {
	fd := file.Fd()
	if fd == vfs.InvalidFd {
		return writeEach(file, buffers, at)
	}
	for len(buffers) > 0 {
		n, err := unix.Pwritev(int(fd), buffers[:min(len(buffers), writeAtOnce)], at+written)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, err
		}
		written += int64(n)
		buffers = after(buffers, n)
	}
	return written, nil
}

// after returns what is left of buffers after n bytes. It changes them.
func after(buffers [][]byte, n int) [][]byte {
	for len(buffers) > 0 && n >= len(buffers[0]) {
		n -= len(buffers[0])
		buffers = buffers[1:]
	}
	if n > 0 {
		buffers[0] = buffers[0][n:]
	}
	return buffers
}
