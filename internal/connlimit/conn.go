package connlimit

import "net"

// conn is a connection that counts until it is closed.
type conn struct {
	*net.TCPConn
	release func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.release()
	return c.TCPConn.Close()
}
