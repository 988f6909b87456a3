package idem

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/internal/secret"
	"github.com/idem-go/idem/internal/wire"
)

// answer is one response of the provider, its body read.
type answer struct {
	status int
	header http.Header
	body   []byte
	rest   io.ReadCloser  // what follows body: a stream, or a body over MaxResult; nil if body is all
	cut    error          // the body ended too early; body is what came
	lost   error          // what a Read gives after body, where more was there and isn't kept
	live   *http.Response // as Base gave it; nil if it comes from the journal
	sent   *url.URL       // the URL that gave it, as it was sent; nil if it comes from the journal

	bodyless bool          // to a HEAD: its length is not that of body
	tooLarge bool          // body is all of it, and more than is kept
	switched io.ReadCloser // of a 101: the connection, handed over as it is
	trailer  http.Header   // what came after the body
}

// response gives the answer the form that callers know. Each call's body is its
// own; a rest can be read once.
func (a *answer) response() *http.Response {
	r := &http.Response{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if a.live != nil {
		*r = *a.live
	}
	r.StatusCode = a.status
	r.Status = strconv.Itoa(a.status) + " " + http.StatusText(a.status)
	r.Header = a.header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if a.trailer != nil {
		r.Trailer = a.trailer.Clone()
	}
	switch {
	case a.switched != nil:
		r.Body = a.switched
	case a.rest != nil:
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(a.body), a.rest), a.rest}
	case a.lost != nil:
		r.Body, r.ContentLength, r.TransferEncoding = wire.NewBody(a.body, a.lost), -1, nil
	case a.bodyless:
		r.Body = http.NoBody
	default:
		r.Body, r.ContentLength, r.TransferEncoding = wire.NewBody(a.body, nil), int64(len(a.body)), nil
	}
	return r
}

// from is the URL against which the answer's Location is read.
func (a *answer) from(w *wire.Request) *url.URL {
	if a.sent != nil {
		return a.sent
	}
	return w.URL
}

// keepable tells an answer that the journal takes, body and all.
func (a *answer) keepable() bool {
	return a != nil && a.rest == nil && a.switched == nil && !a.tooLarge
}

// closeRest ends a body that nobody will be given: an error's Response is not closed
// by those who look at it. What was read stays, and the rest is ErrBodyTooLarge.
func (a *answer) closeRest() {
	if a != nil && a.rest != nil {
		a.rest.Close()
		a.rest, a.lost = nil, ErrBodyTooLarge
	}
}

// message is the answer as the journal keeps it, without credentials.
func (a *answer) message() *record.Message {
	return &record.Message{Status: a.status, Header: secret.Header(a.header), Trailer: secret.Header(a.trailer), Body: a.body}
}

// answerOf is the inverse of message.
func answerOf(m *record.Message) *answer {
	a := &answer{status: m.Status, header: m.Header, body: m.Body}
	if len(m.Trailer) > 0 {
		a.trailer = m.Trailer
	}
	return a
}

// readAll reads a request body of at most max bytes and checks it against the
// length that was promised; promised < 0, or 0 with a body, promises nothing.
func readAll(body io.ReadCloser, promised, max int64) ([]byte, error) {
	if body == nil || body == http.NoBody {
		if promised > 0 {
			return nil, shortBody(0, promised)
		}
		return nil, nil
	}
	if promised > max {
		return nil, fmt.Errorf("%w: %d bytes, MaxBody is %d", ErrBodyTooLarge, promised, max)
	}
	b, err := io.ReadAll(io.LimitReader(body, max+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", &InvalidError{Field: "Request.Body", Value: len(b), Why: "can't be read to its end"}, err)
	case int64(len(b)) > max:
		return nil, fmt.Errorf("%w: over %d bytes", ErrBodyTooLarge, max)
	case promised > 0 && int64(len(b)) != promised:
		return nil, shortBody(len(b), promised)
	}
	return b, nil
}

// shortBody names the usual reason for a body of another length than promised.
func shortBody(have int, promised int64) error {
	why := fmt.Sprintf("bytes long, and ContentLength promises %d: was it read before? Make a new request for each call", promised)
	return &InvalidError{"Request.Body", have, why}
}
