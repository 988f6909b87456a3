package wire

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
)

// Decode returns a body as it was before the codings of its Content-Encoding were
// applied (RFC 9110 §8.4), at most limit bytes of it. ok is false if a coding isn't
// known here, or the body isn't what it claims to be.
func Decode(h http.Header, body []byte, limit int64) (plain []byte, ok bool) {
	codings := strings.Split(strings.Join(HeaderValues(h, "Content-Encoding"), ","), ",")
	for i := len(codings) - 1; i >= 0; i-- { // the last one was applied last
		if body, ok = decodeOne(strings.ToLower(strings.TrimSpace(codings[i])), body, limit); !ok {
			return nil, false
		}
	}
	return body, true
}

func decodeOne(coding string, body []byte, limit int64) ([]byte, bool) {
	var r io.ReadCloser
	var err error
	switch coding {
	case "", "identity":
		return body, true
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate": // a zlib stream by the RFC; some servers send it bare
		if r, err = zlib.NewReader(bytes.NewReader(body)); err != nil {
			r, err = flate.NewReader(bytes.NewReader(body)), nil
		}
	default:
		return nil, false
	}
	if err != nil {
		return nil, len(body) == 0
	}
	plain, err := io.ReadAll(io.LimitReader(r, limit))
	return plain, err == nil
}
