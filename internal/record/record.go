// Package record turns entries into bytes and back. Every piece that lies in a
// keystore stands in a frame with a version and a checksum, so that damage and
// records of a later release are told apart from data.
package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"unicode/utf8"
)

// ErrDamaged means that the bytes are not what was written.
var ErrDamaged = errors.New("record: damaged")

// Message is a request or an answer with its body.
type Message struct {
	Method string      `json:",omitempty"`
	URL    string      `json:",omitempty"`
	Host   string      `json:",omitempty"`
	Status int         `json:",omitempty"`
	Proto  string      `json:",omitempty"`
	Header http.Header `json:",omitempty"`

	Trailer http.Header `json:",omitempty"` // of an answer
	Close   bool        `json:",omitempty"` // the request asked to close its connection
	Body    []byte      `json:"-"`

	// RawQuery and RawHeader hold what JSON text can't: bytes that aren't UTF-8, and a
	// query that its URL's text would cut.
	RawQuery  []byte              `json:",omitempty"`
	RawHeader map[string][][]byte `json:",omitempty"`
}

// EncodeMessage returns m, not framed: the length of its JSON in four bytes,
// big-endian, the JSON, and the body as it is.
func EncodeMessage(m *Message) ([]byte, error) {
	meta, err := json.Marshal(m.textual())
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4+len(meta)+len(m.Body))
	b = binary.BigEndian.AppendUint32(b, uint32(len(meta)))
	b = append(b, meta...)
	return append(b, m.Body...), nil
}

// DecodeMessage is the inverse of EncodeMessage. The body shares b's memory.
func DecodeMessage(b []byte) (*Message, error) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, fmt.Errorf("%w: message of %d bytes", ErrDamaged, len(b))
	}
	end := 4 + int(binary.BigEndian.Uint32(b))
	m := new(Message)
	if err := json.Unmarshal(b[4:end], m); err != nil {
		return nil, fmt.Errorf("%w: message: %v", ErrDamaged, err)
	}
	for name, values := range m.RawHeader {
		if m.Header == nil {
			m.Header = http.Header{}
		}
		for _, v := range values {
			m.Header[name] = append(m.Header[name], string(v))
		}
	}
	m.RawHeader = nil
	m.Body = b[end:]
	return m, nil
}

// textual is m with the headers that JSON text can't hold moved to RawHeader.
func (m *Message) textual() *Message {
	var raw []string
	for name, values := range m.Header {
		for _, v := range values {
			if !utf8.ValidString(v) {
				raw = append(raw, name)
				break
			}
		}
	}
	if raw == nil {
		return m
	}
	out := *m
	out.Header, out.RawHeader = m.Header.Clone(), map[string][][]byte{}
	for _, name := range raw {
		for _, v := range m.Header[name] {
			out.RawHeader[name] = append(out.RawHeader[name], []byte(v))
		}
		delete(out.Header, name)
	}
	return &out
}

// The frame:
//
//	offset 0  version, 1
//	offset 1  flags, bit 0: the payload is sealed
//	offset 2  CRC-32C of the flags byte and the payload, big-endian
//	offset 6  payload
const (
	version    = 1
	flagSealed = 1
	frameSize  = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(flags byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{flags}, castagnoli), castagnoli, payload)
}

// Frame wraps payload.
func Frame(payload []byte, sealed bool) []byte {
	var flags byte
	if sealed {
		flags = flagSealed
	}
	b := make([]byte, 0, frameSize+len(payload))
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint32(b, checksum(flags, payload))
	return append(b, payload...)
}

// Unframe is the inverse of Frame. The payload shares b's memory.
func Unframe(b []byte) (payload []byte, sealed bool, err error) {
	if len(b) < frameSize {
		return nil, false, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	if b[0] != version {
		return nil, false, fmt.Errorf("%w: version %d, this release knows %d", ErrDamaged, b[0], version)
	}
	flags, payload := b[1], b[frameSize:]
	if binary.BigEndian.Uint32(b[2:]) != checksum(flags, payload) || flags > flagSealed {
		return nil, false, fmt.Errorf("%w: checksum", ErrDamaged)
	}
	return payload, flags == flagSealed, nil
}
