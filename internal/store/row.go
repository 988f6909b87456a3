package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/idem-go/idem/keystore"
)

// What stands in the journal's buckets. A scope is written with its length
// before it, so that no two words can be told apart wrongly whatever bytes they
// hold; what follows it runs to the end.
//
//	bucket     key                               value
//	meta       "format"                          seal, "idem journal", version (8)
//	meta       "clock"                           seal, seen (1), mark (12), epoch (8), age (8)
//	meta       "clock high"                      seal, high (12); absent if it is the mark
//	records    scope, key                        seal, rev (8), lane (1), order (12), has (1), name, head
//	                                             version 2: has (1) is followed by due (12)
//	names      scope, name                       seal, key
//	lanes      scope, lane (1), order (12), key  seal
//	due        scope, due (12), key              seal
//	requests   scope, key                        seal, body
//	responses  scope, key                        seal, body
//
// A seal is the version of the value's form (1) and a CRC-32C (4) over that
// byte, the key and the rest of the value: a value that is damaged, or that
// stands under a damaged key, is recognised. Numbers are big-endian. A time is
// its seconds since 1970 with the sign bit turned (8) and its nanoseconds (4),
// so that bytes sort as times do.
const (
	valueVersion  = 1
	dueVersion    = 2 // of a record with a Due; without one it has the form of the first release
	sealSize      = 5
	orderSize     = 12
	formatMagic   = "idem journal"
	formatVersion = 1 // of the buckets; a program refuses a journal with a later one

	hasRequest  = 1 << 0
	hasResponse = 1 << 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealValue puts the seal before what a value holds.
func sealValue(key []byte, parts ...[]byte) []byte { return sealVersion(valueVersion, key, parts...) }

func sealVersion(version byte, key []byte, parts ...[]byte) []byte {
	size := sealSize
	for _, p := range parts {
		size += len(p)
	}
	v := make([]byte, sealSize, size)
	v[0] = version
	for _, p := range parts {
		v = append(v, p...)
	}
	binary.BigEndian.PutUint32(v[1:sealSize], checksum(key, v))
	return v
}

// checksum is the CRC over all of a value but the CRC itself, and its key.
func checksum(key, value []byte) uint32 {
	sum := crc32.Update(0, castagnoli, value[:1])
	sum = crc32.Update(sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, value[sealSize:])
}

// openValue returns what a value holds behind its seal, as far as there is
// something, and what is wrong with it.
func openValue(key, value []byte) ([]byte, error) { return openVersion(valueVersion, key, value) }

// openVersion is openValue for values up to a version.
func openVersion(newest byte, key, value []byte) ([]byte, error) {
	if len(value) < sealSize {
		return nil, fmt.Errorf("%w: a value of %d bytes", keystore.ErrCorrupt, len(value))
	}
	switch {
	case binary.BigEndian.Uint32(value[1:sealSize]) != checksum(key, value):
		return value[sealSize:], fmt.Errorf("%w: wrong checksum", keystore.ErrCorrupt)
	case value[0] < valueVersion || value[0] > newest:
		return value[sealSize:], fmt.Errorf("%w: a value of version %d", keystore.ErrCorrupt, value[0])
	}
	return value[sealSize:], nil
}

// scopePrefix begins every key that belongs to a scope.
func scopePrefix(scope string) []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(scope)+32), uint64(len(scope)))
	return append(b, scope...)
}

// slotKey is the bucket key of a record or a name.
func slotKey(at slot) []byte { return append(scopePrefix(at.scope), at.word...) }

// splitSlot undoes slotKey.
func splitSlot(k []byte) (slot, error) {
	scope, word, err := cutWord(k)
	return slot{scope, string(word)}, err
}

// cutWord takes a word with its length before it from the front of b.
func cutWord(b []byte) (word string, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return "", nil, fmt.Errorf("%w: a length of %d in %d bytes", keystore.ErrCorrupt, n, len(b))
	}
	end := size + int(n)
	return string(b[size:end]), b[end:], nil
}

// lanePrefix begins the keys of one lane of one scope.
func lanePrefix(scope string, lane keystore.Lane) []byte {
	return append(scopePrefix(scope), byte(lane))
}

// laneKey is where a record stands in its lane.
func laneKey(r *keystore.Record) []byte {
	return append(lanePrefix(r.Scope, r.Lane), position(r.Order, r.Key)...)
}

// duePlace is where an open record stands in the index of what is due.
func duePlace(r *keystore.Record) []byte {
	return append(scopePrefix(r.Scope), position(r.Due, r.Key)...)
}

// position sorts records by their order, then by their key.
func position(order time.Time, key string) []byte {
	return append(appendTime(make([]byte, 0, orderSize+len(key)), order), key...)
}

// splitPosition undoes position.
func splitPosition(p []byte) (time.Time, string) {
	return readTime(p), string(p[orderSize:])
}

func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix())^1<<63)
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

func readTime(b []byte) time.Time {
	sec := int64(binary.BigEndian.Uint64(b) ^ 1<<63)
	return time.Unix(sec, int64(binary.BigEndian.Uint32(b[8:]))).UTC()
}

// encodeRow returns the value of a record without its bodies.
func encodeRow(key []byte, r *row) []byte {
	b := make([]byte, 0, 64+len(r.Name))
	b = binary.BigEndian.AppendUint64(b, r.Rev)
	b = append(b, byte(r.Lane))
	b = appendTime(b, r.Order)
	var has byte
	if r.hasRequest {
		has |= hasRequest
	}
	if r.hasResponse {
		has |= hasResponse
	}
	b = append(b, has)
	version := byte(valueVersion)
	if !r.Due.IsZero() {
		version = dueVersion
		b = appendTime(b, r.Due)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Name)))
	b = append(b, r.Name...)
	return sealVersion(version, key, b, r.Head)
}

// decodeRow undoes encodeRow. With an error it returns as much as can be read,
// none of which is certain. The row shares no memory with the value.
func decodeRow(key, value []byte) (*row, error) {
	r := new(row)
	at, err := splitSlot(key)
	if err != nil {
		return r, err
	}
	r.Scope, r.Key = at.scope, at.word

	b, damage := openVersion(dueVersion, key, value)
	const fixed = 8 + 1 + orderSize + 1
	hasDue := len(value) > 0 && value[0] == dueVersion
	if len(b) < fixed || hasDue && len(b) < fixed+orderSize {
		return r, recordError(at, fmt.Errorf("%w: %d bytes", keystore.ErrCorrupt, len(b)))
	}
	r.Rev = binary.BigEndian.Uint64(b)
	r.Lane = keystore.Lane(b[8])
	r.Order = readTime(b[9:])
	has := b[fixed-1]
	r.hasRequest, r.hasResponse = has&hasRequest != 0, has&hasResponse != 0

	b = b[fixed:]
	if hasDue {
		r.Due, b = readTime(b), b[orderSize:]
	}
	name, head, err := cutWord(b)
	if err != nil {
		return r, recordError(at, err)
	}
	r.Name, r.Head = name, cloneBytes(head)
	if damage != nil {
		return r, recordError(at, damage)
	}
	return r, nil
}

// recordError says which record an error is about.
func recordError(at slot, err error) error {
	return fmt.Errorf("%w (record %q of scope %q)", err, at.word, at.scope)
}

// encodeClock returns the value of the clock.
func encodeClock(key []byte, c clock) []byte {
	b := make([]byte, 0, 32)
	if c.seen {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = appendTime(b, c.mark)
	b = binary.BigEndian.AppendUint64(b, c.epoch)
	b = binary.BigEndian.AppendUint64(b, uint64(c.age))
	return sealValue(key, b)
}

// decodeClock undoes encodeClock.
func decodeClock(key, value []byte) (clock, error) {
	b, err := openValue(key, value)
	if err == nil && len(b) != 1+orderSize+8+8 {
		err = fmt.Errorf("%w: %d bytes", keystore.ErrCorrupt, len(b))
	}
	if err != nil {
		return clock{}, fmt.Errorf("clock: %w", err)
	}
	mark := readTime(b[1:])
	return clock{
		seen:  b[0] != 0,
		mark:  mark,
		epoch: binary.BigEndian.Uint64(b[13:]),
		age:   time.Duration(binary.BigEndian.Uint64(b[21:])),
		last:  mark,
		high:  mark,
	}, nil
}

// encodeHigh returns the value of how far a clock's age is counted.
func encodeHigh(key []byte, c clock) []byte { return sealValue(key, appendTime(nil, c.high)) }

// decodeHigh undoes encodeHigh. Without the value, which the first release didn't write
// and doesn't keep up, it is the mark.
func decodeHigh(c clock, key, value []byte) (clock, error) {
	if value == nil {
		return c, nil
	}
	b, err := openValue(key, value)
	if err == nil && len(b) != orderSize {
		err = fmt.Errorf("%w: %d bytes", keystore.ErrCorrupt, len(b))
	}
	if err != nil {
		return clock{}, fmt.Errorf("clock: %w", err)
	}
	if high := readTime(b); high.After(c.high) {
		c.high = high
	}
	return c, nil
}

// encodeFormat returns the value that says what the file is.
func encodeFormat(key []byte, version uint64) []byte {
	return sealValue(key, []byte(formatMagic), binary.BigEndian.AppendUint64(nil, version))
}

// checkFormat tells whether this program can read the journal.
func checkFormat(key, value []byte) error {
	b, err := openValue(key, value)
	if err != nil {
		return fmt.Errorf("format: %w", err)
	}
	if len(b) != len(formatMagic)+8 || string(b[:len(formatMagic)]) != formatMagic {
		return fmt.Errorf("%w: not a journal of package idem", keystore.ErrCorrupt)
	}
	if v := binary.BigEndian.Uint64(b[len(formatMagic):]); v != formatVersion {
		return fmt.Errorf("journal has format %d, this program knows only %d", v, formatVersion)
	}
	return nil
}
