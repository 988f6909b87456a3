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
)

// read takes the answer in: whole, as far as it is to be kept, or at its head.
func (p *pass) read(resp *http.Response, timer *time.Timer, stop func()) *answer {
	a := &answer{status: resp.StatusCode, header: resp.Header, live: resp, hop: p.hop}
	if resp.Body == nil {
		return a
	}
	if p.passThrough(resp) {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	limit := p.limit
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	a.body = body
	if err == nil && int64(len(body)) > limit {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	if err == nil && resp.ContentLength > int64(len(body)) && !p.bodyless(resp) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = p.cutJSON(resp, body)
	}
	if err != nil {
		a.cut = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, p.scrub(err))
	}
	resp.Body.Close()
	a.bodyless = p.bodyless(resp)
	return a
}

// bodyless tells an answer whose length is that of a body which isn't sent.
func (p *pass) bodyless(resp *http.Response) bool {
	return p.wire.Method == http.MethodHead && !p.polling || resp.StatusCode == http.StatusNotModified
}

// passThrough tells an answer whose body is not awaited: a stream of events, and a
// read of unknown or large size.
func (p *pass) passThrough(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
		return resp.StatusCode < 300
	}
	return p.reads && resp.StatusCode < 300 && (resp.ContentLength < 0 || resp.ContentLength > p.client.opts.MaxResult)
}

// cutJSON recognises an HTTP/1 answer that ended with its connection, claims JSON
// and doesn't parse. The same bytes a second time are what the provider means.
func (p *pass) cutJSON(resp *http.Response, body []byte) error {
	delimited := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor > 1 || resp.Uncompressed
	if delimited || p.reads || resp.StatusCode > 299 || !strings.Contains(resp.Header.Get("Content-Type"), "json") || json.Valid(body) {
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
