package record

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"strconv"
)

// ErrSealed means that bytes were encrypted with a key that isn't at hand.
var ErrSealed = errors.New("record: sealed with another key")

// Sealer frames what is kept, encrypted if it has a seal.
type Sealer struct {
	Seal   cipher.AEAD   // nil: in the clear
	Unseal []cipher.AEAD // older seals, tried after Seal
}

// place binds a sealed part to its place, so that one entry's bytes can't be put into
// another's record.
func place(scope, key, part string) []byte {
	return []byte(strconv.Itoa(len(scope)) + ":" + scope + key + "\x00" + part)
}

// Close returns the frame of plain, for the part of a record with this scope and key.
func (s Sealer) Close(scope, key, part string, plain []byte) []byte {
	if s.Seal == nil {
		return Frame(plain, false)
	}
	nonce := make([]byte, s.Seal.NonceSize(), s.Seal.NonceSize()+len(plain)+s.Seal.Overhead())
	rand.Read(nonce) // never fails since Go 1.24
	return Frame(s.Seal.Seal(nonce, nonce, plain, place(scope, key, part)), true)
}

// Open is the inverse of Close. Its error is ErrDamaged or ErrSealed.
func (s Sealer) Open(scope, key, part string, framed []byte) ([]byte, error) {
	payload, sealed, err := Unframe(framed)
	if err != nil {
		return nil, err
	}
	if !sealed {
		return payload, nil
	}
	for _, a := range append([]cipher.AEAD{s.Seal}, s.Unseal...) {
		if a == nil || len(payload) < a.NonceSize() {
			continue
		}
		n := a.NonceSize()
		if plain, err := a.Open(nil, payload[:n], payload[n:], place(scope, key, part)); err == nil {
			return plain, nil
		}
	}
	return nil, ErrSealed
}
