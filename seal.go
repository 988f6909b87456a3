package idem

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/keystore"
)

// The parts of a record, as named in what Seal authenticates.
const (
	partHead     = "head"
	partRequest  = "request"
	partResponse = "response"
)

// sealer turns heads and messages into a record's bytes, framed and, if the options
// say so, encrypted.
type sealer struct {
	seal   cipher.AEAD   // nil: in the clear
	unseal []cipher.AEAD // tried after seal
}

// aad binds a sealed part to its place, so that one entry's bytes can't be put
// into another's record.
func aad(scope, key, part string) []byte {
	return []byte(strconv.Itoa(len(scope)) + ":" + scope + key + "\x00" + part)
}

func (s sealer) close(scope, key, part string, plain []byte) []byte {
	if s.seal == nil {
		return record.Frame(plain, false)
	}
	nonce := make([]byte, s.seal.NonceSize(), s.seal.NonceSize()+len(plain)+s.seal.Overhead())
	rand.Read(nonce) // never fails since Go 1.24
	return record.Frame(s.seal.Seal(nonce, nonce, plain, aad(scope, key, part)), true)
}

func (s sealer) open(scope, key, part string, framed []byte) ([]byte, error) {
	payload, sealed, err := record.Unframe(framed)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", key, ErrCorrupt, err)
	}
	if !sealed {
		return payload, nil
	}
	for _, a := range append([]cipher.AEAD{s.seal}, s.unseal...) {
		if a == nil || len(payload) < a.NonceSize() {
			continue
		}
		n := a.NonceSize()
		if plain, err := a.Open(nil, payload[:n], payload[n:], aad(scope, key, part)); err == nil {
			return plain, nil
		}
	}
	return nil, fmt.Errorf("idem: entry %s: %w", key, ErrSealed)
}

func (s sealer) sealHead(h *head) ([]byte, error) {
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	return s.close(h.Scope, string(h.Key), partHead, b), nil
}

func (s sealer) openHead(rec keystore.Record) (*head, error) {
	b, err := s.open(rec.Scope, rec.Key, partHead, rec.Head)
	if err != nil {
		return nil, err
	}
	h, err := decodeHead(b)
	if err == nil && (string(h.Key) != rec.Key || h.Scope != rec.Scope || h.State < StatePending || h.State > StateAbandoned) {
		err = errors.New("the head belongs to another record")
	}
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return h, nil
}

// sealMessage returns the bytes of a request or an answer, for the place in rec that
// part names.
func (s sealer) sealMessage(rec keystore.Record, part string, m *record.Message) ([]byte, error) {
	b, err := record.EncodeMessage(m)
	if err != nil {
		return nil, err
	}
	return s.close(rec.Scope, rec.Key, part, b), nil
}

func (s sealer) openRequest(rec keystore.Record) (*record.Message, error) {
	return s.openMessage(rec, partRequest, rec.Request)
}

func (s sealer) openResponse(rec keystore.Record) (*record.Message, error) {
	return s.openMessage(rec, partResponse, rec.Response)
}

func (s sealer) openMessage(rec keystore.Record, part string, framed []byte) (*record.Message, error) {
	if len(framed) == 0 {
		return nil, fmt.Errorf("idem: entry %s: no %s kept: %w", rec.Key, part, ErrNotFound)
	}
	b, err := s.open(rec.Scope, rec.Key, part, framed)
	if err != nil {
		return nil, err
	}
	m, err := record.DecodeMessage(b)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return m, nil
}
