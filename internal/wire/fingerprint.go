package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"
)

// fingerprintVersion is hashed first. Changing what is hashed, or how, means a
// new version beside the old one, for entries outlive releases.
const fingerprintVersion = "idem/1"

// Fingerprint is what makes two requests the same intent. It covers the method,
// the URL, a host that overrides the URL's, the content type, the headers that
// are named and the body. It covers neither the key, wherever it stands,
// nor credentials, so that a request has one fingerprint before and after place
// and withhold, and an SDK that mints a key for every call repeats itself.
func (m *Request) Fingerprint(key Spot, isPayload func(param string) bool, headers []string) [sha256.Size]byte {
	h := sha256.New()
	hashText(h, fingerprintVersion)
	hashText(h, m.Method)
	for _, part := range m.identity(isPayload) {
		hashText(h, part)
	}
	hashValues(h, HeaderValues(m.Header, "Content-Type"))
	names := slices.Clone(headers)
	for i := range names {
		names[i] = strings.ToLower(names[i])
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		hashText(h, name)
		hashValues(h, HeaderValues(m.Header, name))
	}
	hashText(h, string(key.Payload(m)))
	return [sha256.Size]byte(h.Sum(nil))
}

// identity returns scheme, host, path, query and overriding host.
func (m *Request) identity(isPayload func(param string) bool) []string {
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
	query := WithoutParams(m.URL.RawQuery, func(name string) bool { return !isPayload(name) })
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
