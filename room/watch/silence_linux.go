package watch

import "syscall"

// maxSilence is how many milliseconds sent bytes may stay unacknowledged. By default
// Linux retries for a quarter of an hour: a phone out of reach would keep its place
// and be admitted.
const maxSilence = 30_000

// userTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const userTimeout = 0x12

// limitSilence ignores errors: other sockets do not have the option.
func limitSilence(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, maxSilence)
	})
}
