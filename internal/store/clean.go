package store

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"

	"github.com/idem-go/idem/internal/store/pagecheck"
)

// The note of a clean close is a sum over all pages in use, behind the last of them,
// where bbolt will write when it needs more room:
//
//	magic "idemsum1" (8), transaction (8), bytes summed (8), CRC-32C of them (4),
//	CRC-32C of all that (4)
//
// To read a file once is much faster than to follow its pages and compare its records
// with their indexes, and the sum vouches for more. A note that is missing, overwritten
// or of another transaction vouches for nothing, and the long way is gone; so it need
// never be taken back, nor be durable.
const (
	noteMagic = "idemsum1"
	noteSize  = 32
	sumStep   = 1 << 20 // how much to read at once
)

// noteClean writes the note, if there is room for it in the file as it is.
func noteClean(f *os.File) error {
	meta, size, err := newestMeta(f)
	if err != nil {
		return err
	}
	end := meta.End()
	if end+noteSize > size {
		return nil
	}
	note, err := cleanNote(f, meta.Txid, end)
	if err == nil {
		_, err = f.WriteAt(note, end)
	}
	return err
}

// closedClean tells whether the file is as a clean close left it.
func closedClean(f *os.File) bool {
	meta, size, err := newestMeta(f)
	if err != nil {
		return false
	}
	end := meta.End()
	if end+noteSize > size {
		return false
	}
	found := make([]byte, noteSize)
	if _, err := f.ReadAt(found, end); err != nil || string(found[:len(noteMagic)]) != noteMagic {
		return false // without reading all the rest
	}
	note, err := cleanNote(f, meta.Txid, end)
	return err == nil && string(note) == string(found)
}

func newestMeta(f *os.File) (meta pagecheck.Meta, size int64, err error) {
	info, err := f.Stat()
	if err == nil {
		meta, err = pagecheck.NewestMeta(f, info.Size())
	}
	if err != nil {
		return meta, 0, err
	}
	return meta, info.Size(), nil
}

// cleanNote sums up the first bytes of a file.
func cleanNote(f io.ReaderAt, txid uint64, end int64) ([]byte, error) {
	var sum uint32
	b := make([]byte, sumStep)
	for off := int64(0); off < end; {
		n, err := f.ReadAt(b[:min(sumStep, end-off)], off)
		if err != nil {
			return nil, err
		}
		sum = crc32.Update(sum, castagnoli, b[:n])
		off += int64(n)
	}
	note := append(make([]byte, 0, noteSize), noteMagic...)
	note = binary.BigEndian.AppendUint64(note, txid)
	note = binary.BigEndian.AppendUint64(note, uint64(end))
	note = binary.BigEndian.AppendUint32(note, sum)
	return binary.BigEndian.AppendUint32(note, crc32.Checksum(note, castagnoli)), nil
}
