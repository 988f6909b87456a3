package mockserver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// deliver brings an outcome to a client of net/http's server.
func deliver(w http.ResponseWriter, r *http.Request, out outcome, l *life) {
	switch out.way {
	case answered:
		write(w, out.ans)
	case hung:
		select {
		case <-r.Context().Done():
		case <-l.over:
		}
		sever(w, true)
	case dropped:
		sever(w, false)
	case cut, cutHead:
		writeCut(w, out)
	default:
		sever(w, true)
	}
}

// write writes a whole answer.
func write(w http.ResponseWriter, a *answer) {
	h := w.Header()
	for name, values := range a.header {
		h[name] = values
	}
	h.Del("Transfer-Encoding")
	h.Del("Content-Length")
	if !a.bodyless() {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// hijack takes the connection over, or aborts where that can't be done.
func hijack(w http.ResponseWriter) net.Conn {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	buf.Flush()
	return conn
}

// sever closes the connection without an answer; hard, so that the client sees
// a reset.
func sever(w http.ResponseWriter, hard bool) {
	conn := hijack(w)
	if tcp, ok := conn.(*net.TCPConn); ok && hard {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// writeCut writes an answer up to where it is cut.
func writeCut(w http.ResponseWriter, out outcome) {
	conn := hijack(w)
	defer conn.Close()
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\n", out.ans.status, http.StatusText(out.ans.status))
	if out.way == cutHead {
		io.WriteString(conn, head+"Content-Ty")
		return
	}
	io.WriteString(conn, head)
	h, part := out.ans.header.Clone(), out.ans.body[:out.cutAt()]
	h.Del("Content-Length")
	switch out.fault.Framing {
	case FramingChunked:
		h.Set("Transfer-Encoding", "chunked")
		part = fmt.Appendf(nil, "%x\r\n%s\r\n", len(part), part)
	case FramingClose:
		h.Set("Connection", "close")
	default:
		h.Set("Content-Length", strconv.Itoa(out.length()))
	}
	h.Write(conn)
	io.WriteString(conn, "\r\n")
	conn.Write(part)
}

// cutAt is how many bytes of the body get through.
func (o *outcome) cutAt() int {
	n := len(o.ans.body)
	if o.fault.CutAt > 0 {
		return min(n, o.fault.CutAt)
	}
	return n / 2
}

// length is what Content-Length says of a cut body: always more than comes.
func (o *outcome) length() int { return max(len(o.ans.body), o.cutAt()+1) }
