package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/tap"
)

// tried is what one attempt brought back.
type tried struct {
	answer *answer // nil: no answer, and row says what that means
	row    verdict // rowNotSent, rowRefused, rowLost
	err    error   // nil if there was an answer
	twice  bool    // two connections were handed out: somebody below resent
	barred error   // the attempt was called off before it was sent: expired, window closed, Authorize failed
}

// errAttemptTimeout is the cause of an attempt's own end; it is a timeout, and
// not the caller's.
var errAttemptTimeout = fmt.Errorf("idem: attempt timed out: %w", context.DeadlineExceeded)

// attempt sends the journaled bytes once. Every send goes through here: the first,
// a retry after a status or an error, the probe of a half-open breaker, a hop, a
// poll, a resume after a crash and a delivery by Run.
func (d *call) attempt() tried {
	ctx, cancel := context.WithCancelCause(d.hookContext())
	spy := &tap.Spy{Cancel: cancel, Late: d.expired, Sent: func() { crash.At(crash.Sent) }}
	timer := time.AfterFunc(d.attemptTime(), func() { cancel(errAttemptTimeout) })
	stop := func() { timer.Stop(); cancel(nil) }
	reading := false // the answer's body outlives the attempt
	defer func() {
		if !reading {
			stop()
		}
	}()

	req, err := d.build(ctx)
	if err != nil {
		return tried{row: rowRefused, err: err, barred: err}
	}
	if context.Cause(ctx) == errAttemptTimeout { // Authorize took it all
		return tried{row: rowNotSent, err: errAttemptTimeout}
	}
	// Only now: a token that Authorize fetched under this context is no attempt.
	req = req.WithContext(httptrace.WithClientTrace(ctx, spy.Trace()))
	resp, err := d.client.base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errors.New("idem: Options.Base returned neither response nor error")
	}
	if err != nil {
		return d.noAnswer(ctx, spy, err)
	}
	a := d.read(resp, timer, stop)
	if d.cargo != nil {
		a.closeRest() // nobody gets it
	}
	reading = a.rest != nil
	crash.At(crash.Answered)
	return tried{answer: a, twice: spy.Conns() > 1}
}

// attemptTime is the attempt's own limit, cut at the end of the window: a byte that
// left later could act again.
func (d *call) attemptTime() time.Duration {
	limit := d.client.opts.Retry.attemptTimeout()
	if end, ends := d.windowEnd(); ends {
		limit = min(limit, max(end.Sub(wallClock()), 0))
	}
	return limit
}

// build makes the request for one attempt: the journaled bytes under the key's
// wire form, then today's credentials, freshly authorised.
func (d *call) build(ctx context.Context) (*http.Request, error) {
	w, ours := d.next()
	if !d.plain && !d.visit && !d.head.Unkeyed {
		d.dialect.placeFirstSent(w, d.head.FirstSent)
	}
	if ours {
		d.live.restore(w)
	}
	req := w.request(ctx)
	if ours {
		if err := d.authorize(req); err != nil {
			return nil, err
		}
	}
	// Fetching a token may have taken long.
	if err := d.barred(); err != nil {
		return nil, err
	}
	// Without GetBody net/http can't send a body twice; see docs/adr/0004.
	req.GetBody = nil
	if req.Body == http.NoBody {
		req.Body = nil
	}
	return req, nil
}

// next is the request to send now, and whether it goes to the intent's own origin,
// which alone gets credentials.
func (d *call) next() (w *wireRequest, ours bool) {
	hop := *d.wire
	if d.hop == nil {
		return &hop, true
	}
	hop.URL = d.hop
	if d.visit {
		hop = wireRequest{Method: http.MethodGet, URL: d.hop, Header: http.Header{}}
		if accept := d.wire.Header.Get("Accept"); accept != "" {
			hop.Header.Set("Accept", accept)
		}
	}
	return &hop, originOf(d.hop) == originOf(d.wire.URL)
}

// authorize runs the hook and then sees to it that every credential which the
// journal withheld stands on the request again.
func (d *call) authorize(req *http.Request) error {
	if hook := d.client.opts.Authorize; hook != nil {
		host, path, before := req.URL.Host, req.URL.Path, req.Header.Clone()
		err := hook(req)
		d.noteFresh(before, req)
		if err != nil {
			return fmt.Errorf("idem: authorize: %w", d.scrub(err))
		}
		if req.URL.Host != host || req.URL.Path != path {
			return &InvalidError{"Options.Authorize", req.URL.Host, "must not send the request elsewhere"}
		}
	}
	if missing := d.live.missing(&wireRequest{URL: req.URL, Header: req.Header}); len(missing) > 0 && !d.visit {
		return fmt.Errorf("%w: %s", ErrCredentials, strings.Join(missing, ", "))
	}
	return nil
}

// noteFresh remembers what Authorize added, so that no error shows it: what the hook
// sets is a credential or a signature, whatever its name.
func (d *call) noteFresh(before http.Header, req *http.Request) {
	_, sent := d.dialect.withhold(&wireRequest{URL: req.URL, Header: req.Header})
	d.fresh = sent.secrets()
	for name, values := range req.Header {
		if !slices.Equal(values, before[name]) {
			d.fresh = append(d.fresh, values...)
		}
	}
}

// noAnswer tells a request that provably never left from one that may have.
func (d *call) noAnswer(ctx context.Context, s *tap.Spy, err error) tried {
	cause := context.Cause(ctx)
	t := tried{row: rowLost, err: d.scrub(err), twice: s.Conns() > 1}
	if cause == errAttemptTimeout {
		t.err = fmt.Errorf("%w: %w", errAttemptTimeout, t.err)
	}
	if s.NeverSent(err) {
		t.row, t.twice = rowNotSent, false
		if tap.Permanent(err) {
			t.row = rowRefused
		}
	}
	if d.ctx.Err() != nil {
		t.row.strained = false // the caller's end says nothing about the provider
	}
	return t
}

// read takes the answer in: whole, as far as it is to be kept, or at its head.
func (d *call) read(resp *http.Response, timer *time.Timer, stop func()) *answer {
	a := &answer{status: resp.StatusCode, header: resp.Header, live: resp, hop: d.hop}
	if resp.Body == nil {
		return a
	}
	if d.passThrough(resp) {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	limit := d.maxResult()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	a.body = body
	if err == nil && int64(len(body)) > limit {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	if err == nil && resp.ContentLength > int64(len(body)) && !bodyless(d, resp) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = d.cutJSON(resp, body)
	}
	if err != nil {
		a.cut = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, d.scrub(err))
	}
	resp.Body.Close()
	a.bodyless = bodyless(d, resp)
	return a
}

// maxResult is how much of an answer is read at once. A batch's call may take as much
// for each of its items, since its codec needs all of it.
func (d *call) maxResult() int64 {
	limit := d.client.opts.MaxResult
	if d.cargo == nil {
		return limit
	}
	n := int64(max(len(d.cargo.items), 1))
	return min(limit, (math.MaxInt64-1)/n) * n
}

// bodyless tells an answer whose length is that of a body which isn't sent.
func bodyless(d *call, resp *http.Response) bool {
	return d.wire.Method == http.MethodHead && !d.visit || resp.StatusCode == http.StatusNotModified
}

// passThrough tells an answer whose body is not awaited: a stream of events, and a
// read of unknown or large size.
func (d *call) passThrough(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
		return resp.StatusCode < 300
	}
	return d.plain && resp.StatusCode < 300 && (resp.ContentLength < 0 || resp.ContentLength > d.client.opts.MaxResult)
}

// cutJSON recognises an HTTP/1 answer that ended with its connection, claims JSON
// and doesn't parse. The same bytes a second time are what the provider means.
func (d *call) cutJSON(resp *http.Response, body []byte) error {
	delimited := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor > 1 || resp.Uncompressed
	if delimited || d.plain || resp.StatusCode > 299 || !strings.Contains(resp.Header.Get("Content-Type"), "json") || json.Valid(body) {
		return nil
	}
	sum := sumOf(body)
	if bytes.Equal(sum, d.head.CutSum) {
		return nil
	}
	d.head.CutSum = sum
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
