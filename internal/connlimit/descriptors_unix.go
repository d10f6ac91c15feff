//go:build unix

package connlimit

import "golang.org/x/sys/unix"

// Descriptors returns how many connections there may be, so that some of the files that
// this process may open are left for the stores: half of them, but at most 4,096.
func Descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return connectionsOf(2 * mostForStores)
	}
	return connectionsOf(uint64(limit.Cur)) //nolint:unconvert // it is signed on some systems
}
