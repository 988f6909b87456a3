package mockserver

import (
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// listener is a server on loopback.
type listener struct {
	net  net.Listener
	http *http.Server
	done chan struct{}

	mu   sync.Mutex
	idle map[net.Conn]bool // connections between two requests
}

func listen(h http.Handler) (*listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &listener{net: ln, done: make(chan struct{}), idle: map[net.Conn]bool{}}
	l.http = &http.Server{Handler: h, ConnState: l.track, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(l.done)
		l.http.Serve(ln)
	}()
	return l, nil
}

func (l *listener) url() string { return "http://" + l.net.Addr().String() }

func (l *listener) track(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state == http.StateIdle {
		l.idle[c] = true
	} else {
		delete(l.idle, c)
	}
}

func (l *listener) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.idle {
		c.Close()
	}
}

func (l *listener) close() {
	l.http.Close()
	<-l.done
}
