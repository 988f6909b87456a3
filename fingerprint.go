package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/wire"
)

// fingerprintVersion is hashed first. Changing what is hashed, or how, means a
// new version beside the old one, for entries outlive releases.
const fingerprintVersion = "idem/1"

// fingerprint is what makes two requests the same intent. It covers the method,
// the URL, a host that overrides the URL's, the content type, the headers that
// the dialect names and the body. It covers neither the key, wherever it stands,
// nor credentials, so that a request has one fingerprint before and after place
// and withhold, and an SDK that mints a key for every call repeats itself.
func (d Dialect) fingerprint(m *wire.Request) [sha256.Size]byte {
	h := sha256.New()
	hashText(h, fingerprintVersion)
	hashText(h, m.Method)
	for _, part := range d.identityOfURL(m) {
		hashText(h, part)
	}
	hashValues(h, wire.HeaderValues(m.Header, "Content-Type"))
	names := slices.Clone(d.Headers)
	for i := range names {
		names[i] = strings.ToLower(names[i])
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		hashText(h, name)
		hashValues(h, wire.HeaderValues(m.Header, name))
	}
	hashText(h, string(d.spot().Payload(m)))
	return [sha256.Size]byte(h.Sum(nil))
}

// identityOfURL returns scheme, host, path, query and overriding host.
func (d Dialect) identityOfURL(m *wire.Request) []string {
	urlHost, host := strings.ToLower(m.URL.Host), strings.ToLower(m.Host)
	if host == urlHost {
		host = "" // net/http fills it in
	}
	path := m.URL.EscapedPath()
	if m.URL.Opaque != "" {
		path = m.URL.Opaque
	} else if path == "" {
		path = "/"
	}
	query := wire.WithoutParams(m.URL.RawQuery, d.own().NotPayload)
	return []string{strings.ToLower(m.URL.Scheme), urlHost, path, query, host}
}

// hashText writes the length first, so that no two lists of parts run together
// to the same bytes.
func hashText(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	h.Write([]byte(s))
}

func hashValues(h hash.Hash, values []string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(values)))
	h.Write(n[:])
	for _, v := range values {
		hashText(h, v)
	}
}

func sumOf(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
