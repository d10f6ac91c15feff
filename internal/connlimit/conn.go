package connlimit

import "net"

// answerBuffer bounds what the kernel holds of an answer that is not read, in bytes: on the
// client's connection what is to be sent, and on that to a server what has been received.
// Linux doubles it, and gives at most 208 KiB unless net.core.wmem_max is raised. Left to
// itself it lets a buffer grow to megabytes, and resets connections once some thousand of
// them are full. The price is 256 KiB a round trip: 2.6 MB/s at 100 ms. Kafka's own default
// (socket.send.buffer.bytes) is 100 KiB.
const answerBuffer = 128 << 10

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
