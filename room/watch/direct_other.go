//go:build !unix

package watch

import "net"

// newDirect finds no socket that can be written without waiting: the goroutine
// of the handler writes.
func newDirect(net.Conn, []byte, bool) (sink, bool) { return nil, false }
