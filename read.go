package idem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/wire"
)

// matchLimit is how much of an answer matchers see at least, in bytes, however little
// of it is kept.
const matchLimit = 1 << 20

// read takes the answer in: whole, as far as it is to be kept, or at its head.
func (p *pass) read(resp *http.Response, timer *time.Timer, stop func()) *answer {
	a := &answer{status: resp.StatusCode, header: resp.Header, live: resp, bodyless: p.bodyless(resp)}
	switch {
	case resp.Body == nil:
		return a
	case resp.StatusCode == http.StatusSwitchingProtocols:
		timer.Stop()
		a.switched = handOver(resp.Body, stop)
		return a
	case p.passThrough(resp):
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	limit := max(p.limit, matchLimit)
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	a.body = body
	if err == nil && int64(len(body)) > limit {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	if err == nil {
		err = p.cutShort(resp, body)
	}
	if err != nil {
		a.cut = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, p.scrub(err))
	}
	resp.Body.Close()
	a.tooLarge = int64(len(body)) > p.limit
	if len(resp.Trailer) > 0 {
		a.trailer = resp.Trailer
	}
	return a
}

// handOver keeps the attempt's context until a connection that changed its protocol is
// closed. It stays readable and writable (net/http gives an io.ReadWriteCloser).
func handOver(body io.ReadCloser, done func()) io.ReadCloser {
	s := &stream{ReadCloser: body, done: done}
	w, ok := body.(io.Writer)
	if !ok {
		return s
	}
	return struct {
		*stream
		io.Writer
	}{s, w}
}

// cutShort tells a body that ended before it was whole, by its length or its form.
func (p *pass) cutShort(resp *http.Response, body []byte) error {
	if resp.ContentLength > int64(len(body)) && !p.bodyless(resp) {
		return io.ErrUnexpectedEOF
	}
	return p.cutJSON(resp, body)
}

// bodyless tells an answer whose length is that of a body which isn't sent.
func (p *pass) bodyless(resp *http.Response) bool {
	return p.wire.Method == http.MethodHead && !p.polling || resp.StatusCode == http.StatusNotModified
}

// passThrough tells an answer whose body is not awaited: a stream, and a read of
// unknown or large size.
func (p *pass) passThrough(resp *http.Response) bool {
	if resp.StatusCode >= 300 {
		return false
	}
	if wire.IsStream(resp.Header) {
		return true
	}
	return p.reads && (resp.ContentLength < 0 || resp.ContentLength > p.client.opts.MaxResult)
}

// cutJSON recognises an HTTP/1 answer that ended with its connection, claims JSON
// and doesn't parse. The same bytes a second time are what the provider means.
func (p *pass) cutJSON(resp *http.Response, body []byte) error {
	if p.reads || resp.StatusCode > 299 || wire.Delimited(resp) {
		return nil
	}
	if !strings.Contains(resp.Header.Get("Content-Type"), "json") || json.Valid(body) {
		return nil
	}
	sum := sumOf(body)
	if bytes.Equal(sum, p.cutSum) {
		return nil
	}
	p.cutSum = sum
	return errors.New("the JSON is not complete")
}

// stream is a body that outlives its attempt; its end is the attempt's.
type stream struct {
	io.ReadCloser
	done func()
}

// stream is the answer's body if that outlives its attempt.
func (a *answer) stream() *stream {
	switch b := a.switched.(type) {
	case *stream:
		return b
	case struct {
		*stream
		io.Writer
	}:
		return b.stream
	}
	s, _ := a.rest.(*stream)
	return s
}

func (s *stream) Close() error {
	err := s.ReadCloser.Close()
	s.done()
	return err
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil {
		s.done()
	}
	return n, err
}
