package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/tap"
	"github.com/idem-go/idem/internal/wire"
)

// tried is what one attempt brought back.
type tried struct {
	answer  *answer // nil: no answer, and instead says what that means
	instead verdict // verdictNotSent, verdictRefused, verdictLost
	err     error   // nil if there was an answer
	twice   bool    // two connections were handed out: somebody below resent
	stopped error   // it was called off before it was sent: expired, window closed, Authorize failed
	elapsed time.Duration
}

// mayHaveLeft tells an attempt that isn't proven to have stayed here.
func (t tried) mayHaveLeft() bool {
	return t.answer != nil || t.instead.row != rowNotSent && t.instead.row != rowRefused
}

// cut tells an answer whose body ended too early.
func (t tried) cut() bool { return t.answer != nil && t.answer.cut != nil }

// sender says what a pass sends next, and what may still stop it.
type sender interface {
	// next is the request to send, and whether it goes to the intent's own origin,
	// which alone gets credentials.
	next() (w *wire.Request, ours bool)

	// whyStop is asked when the credentials are in place: fetching a token may have
	// taken long.
	whyStop() error

	// expired is asked when a connection is there, before the first byte.
	expired() error

	// attemptTime is how long the attempt may take.
	attemptTime() time.Duration
}

// errAttemptTimeout is the cause of an attempt's own end; it is a timeout, and
// not the caller's.
var errAttemptTimeout = fmt.Errorf("idem: attempt timed out: %w", context.DeadlineExceeded)

// attempt sends a request once. Every send goes through here: the first, a retry after
// a status or an error, the probe of a half-open breaker, a hop, a poll, a resume after
// a crash and a delivery by Run.
func (p *pass) attempt(s sender) tried {
	ctx, cancel := context.WithCancelCause(p.hookContext())
	spy := &tap.Spy{Cancel: cancel, Late: s.expired, Sent: func() { crash.At(crash.Sent) }, Host: wire.HostPort(p.target())}
	timer := time.AfterFunc(s.attemptTime(), func() { cancel(errAttemptTimeout) })
	stop := func() { timer.Stop(); cancel(nil) }
	reading := false // the answer's body outlives the attempt
	defer func() {
		if !reading {
			stop()
		}
	}()

	req, err := p.build(ctx, s)
	if err != nil {
		return tried{instead: verdictRefused, err: err, stopped: err}
	}
	if context.Cause(ctx) == errAttemptTimeout { // Authorize took it all
		return tried{instead: verdictNotSent, err: errAttemptTimeout}
	}
	// Only now: a token that Authorize fetched under this context is no attempt.
	req = req.WithContext(httptrace.WithClientTrace(ctx, spy.Trace()))
	resp, err := p.client.base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errors.New("idem: Options.Base returned neither response nor error")
	}
	if err != nil {
		return p.noAnswer(ctx, spy, err)
	}
	a := p.read(resp, timer, stop)
	a.sent = req.URL
	reading = a.rest != nil || a.switched != nil
	crash.At(crash.Answered)
	return tried{answer: a, twice: spy.Conns() > 1}
}

// target is where the next attempt goes.
func (p *pass) target() *url.URL {
	if p.hop != nil {
		return p.hop
	}
	return p.wire.URL
}

// build makes the request for one attempt: the journaled bytes under the key's
// wire form, then today's credentials, freshly authorised.
func (p *pass) build(ctx context.Context, s sender) (*http.Request, error) {
	w, ours := s.next()
	if ours {
		p.live.Restore(w)
	}
	req := w.HTTP(ctx)
	if ours {
		if err := p.authorize(req); err != nil {
			return nil, err
		}
		w.Refill(req) // a signer may have read the body, or put another
	}
	if err := s.whyStop(); err != nil {
		return nil, err
	}
	// Without GetBody net/http can't send a body twice; see docs/adr/0004.
	req.GetBody = nil
	if req.Body == http.NoBody {
		req.Body = nil
	}
	return req, nil
}

// authorize runs the hook and then sees to it that every credential which the
// journal withheld stands on the request again.
func (p *pass) authorize(req *http.Request) error {
	if hook := p.client.opts.Authorize; hook != nil {
		host, path, method, before := req.URL.Host, req.URL.Path, req.Method, req.Header.Clone()
		err := hook(req)
		p.noteFresh(before, req)
		if err != nil {
			return fmt.Errorf("idem: authorize: %w", p.scrub(err))
		}
		if req.URL.Host != host || req.URL.Path != path {
			return &InvalidError{"Options.Authorize", req.URL.Host, "must not send the request elsewhere"}
		}
		if req.Method != method {
			return &InvalidError{"Options.Authorize", req.Method, "must not change the method"}
		}
	}
	if missing := p.live.Missing(&wire.Request{URL: req.URL, Header: req.Header}); len(missing) > 0 && !p.polling {
		return fmt.Errorf("%w: %s", ErrCredentials, strings.Join(missing, ", "))
	}
	return nil
}

// noteFresh remembers what Authorize added, so that no error shows it: what the hook
// sets is a credential or a signature, whatever its name.
func (p *pass) noteFresh(before http.Header, req *http.Request) {
	_, sent := p.dialect.withhold(&wire.Request{URL: req.URL, Header: req.Header})
	p.fresh = sent.Secrets()
	for name, values := range req.Header {
		if !slices.Equal(values, before[name]) {
			p.fresh = append(p.fresh, values...)
		}
	}
}

// noAnswer tells a request that provably never left from one that may have.
func (p *pass) noAnswer(ctx context.Context, s *tap.Spy, err error) tried {
	cause := context.Cause(ctx)
	t := tried{instead: verdictLost, err: p.scrub(err), twice: s.Conns() > 1}
	if cause == errAttemptTimeout {
		t.err = fmt.Errorf("%w: %w", errAttemptTimeout, t.err)
	}
	if s.NeverSent(err) {
		t.instead, t.twice = verdictNotSent, false
		if tap.Permanent(err) {
			t.instead = verdictRefused
		}
	}
	if p.ctx.Err() != nil {
		t.instead.failing = false // the caller's end says nothing about the provider
	}
	return t
}
