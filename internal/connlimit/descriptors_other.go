//go:build !unix

package connlimit

// Descriptors returns how many connections there may be. The system has no limit of
// open files to derive it from.
func Descriptors() int { return 1 << 16 }
