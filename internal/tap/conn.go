package tap

import (
	"crypto/tls"
	"net"
	"sync/atomic"
)

// countedConn counts what is written to a connection.
type countedConn struct {
	net.Conn
	wrote  atomic.Int64 // counted before the write, so that a byte never precedes its count
	closed atomic.Bool
}

func (c *countedConn) Write(p []byte) (int, error) {
	if c.closed.Load() { // what is written now can't leave, and must not count as if it had
		return 0, net.ErrClosed
	}
	c.wrote.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.closed.Store(true)
	return err
}

func counterOf(c net.Conn) *countedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	ours, _ := c.(*countedConn)
	return ours
}

func written(c net.Conn) int64 {
	if ours := counterOf(c); ours != nil {
		return ours.wrote.Load()
	}
	return -1
}
