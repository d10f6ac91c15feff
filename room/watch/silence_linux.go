package watch

import "syscall"

// maxSilence is how many milliseconds sent bytes may stay unacknowledged: without
// it, Linux tries for a quarter of an hour, and a phone that is out of reach would
// hold its place and be let in.
const maxSilence = 30_000

// userTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const userTimeout = 0x12

// limitSilence is best effort: a socket of another kind has no such option.
func limitSilence(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, maxSilence)
	})
}
