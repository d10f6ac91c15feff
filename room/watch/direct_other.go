//go:build !unix

package watch

import "net"

// newDirect returns false: no socket can be written without waiting, and the
// handler's goroutine writes.
func newDirect(net.Conn, []byte, bool) (sink, bool) { return nil, false }
