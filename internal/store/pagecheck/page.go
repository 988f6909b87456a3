package pagecheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// A page of bbolt is a header of 16 bytes, its elements of 16 bytes each, and
// then the keys and values, packed in the order of the elements:
//
//	header   id (8), flags (2), count (2), overflow (4)
//	branch   pos (4), ksize (4), child (8)
//	leaf     flags (4), pos (4), ksize (4), vsize (4)
//	meta     magic, version, page size, flags (4 each), root bucket (16),
//	         freelist, high-water mark, transaction, FNV-1a sum (8 each)
//
// pos counts from the element's own start. Numbers are in the machine's order.
const (
	pageHeader  = 16
	pageElement = 16
	bucketSize  = 16 // root page (8), sequence (8)
	metaSize    = 64

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageMeta     = 0x04
	pageFreelist = 0x10

	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	boltMaxKey   = 32768
	maxPageDepth = 64
	noFreelist   = ^uint64(0)
)

// Meta is what a meta page says.
type Meta struct {
	pageSize, root, freelist, high, Txid, sum uint64

	raw    [metaSize]byte
	framed bool // what no commit changes is right
}

// NewestMeta returns the meta page of the last commit that counts.
//
// The two pages take turns: commit n writes page n%2 over that of commit n-2,
// after all else that it wrote is synced. A page fits in one disk sector, so a
// power cut leaves either the old one or the new one, and bbolt takes the newer
// of the two. But a disk that writes less than a sector at once may leave a mix
// of both, and a sector may go bad.
//
// One page that isn't sound doesn't say which commit it was. If it was the last
// one, that was durable, and to go back to the one before, as bbolt does, would
// forget intents that were sent. So the journal is opened with the sound page
// only if the other was certainly not newer or never acknowledged: see
// supersedes. Otherwise it is ErrCorrupt, and a person decides.
func NewestMeta(file io.ReaderAt, size int64) (Meta, error) {
	if size == 0 {
		return Meta{}, fmt.Errorf("the file is empty")
	}
	first, firstErr := readMeta(file, 0, 0)
	if first.pageSize < 1<<10 || first.pageSize > 1<<24 {
		return Meta{}, firstErr
	}
	second, secondErr := readMeta(file, int64(first.pageSize), 1)
	switch {
	case firstErr == nil && secondErr == nil:
		if second.pageSize != first.pageSize {
			return Meta{}, fmt.Errorf("pages of %d and of %d bytes", first.pageSize, second.pageSize)
		}
		if second.Txid > first.Txid {
			return second, nil
		}
		return first, nil
	case firstErr == nil && first.supersedes(second):
		return first, nil
	case secondErr == nil && second.supersedes(first):
		return second, nil
	}
	return Meta{}, errors.Join(firstErr, secondErr)
}

// Span is a part of a file.
type Span struct{ Offset, Size int64 }

// MetaPages returns where the meta pages stand, as far as the file has any.
func MetaPages(file io.ReaderAt, size int64) []Span {
	meta, err := NewestMeta(file, size)
	if err != nil || size < 2*int64(meta.pageSize) {
		return nil
	}
	n := int64(meta.pageSize)
	return []Span{{0, n}, {n, n}}
}

// End is where the pages in use end, in bytes.
func (m Meta) End() int64 { return int64(m.high * m.pageSize) }

// supersedes tells whether a sound page holds all that was ever acknowledged,
// though the other page has a wrong checksum.
//
// That is so if the other still bears the transaction that commit m.Txid-1 gave
// it: either it is that page, gone bad after it was of use, or the next commit
// was writing over it and its transaction had not arrived, so that nobody was
// told that the commit is there. A page of commit m.Txid+1 which only its
// transaction, damaged, makes look older fits its checksum when that is put
// right. A page that bears m.Txid+1 may be either half written or damaged after
// it was acknowledged, and stays an error, like all else that a write over the
// old page can't leave.
func (m Meta) supersedes(other Meta) bool {
	return other.framed && other.pageSize == m.pageSize && other.Txid+1 == m.Txid &&
		other.sumWith(m.Txid+1) != other.sum
}

// readMeta reads the meta page with this id at an offset. With an error it
// returns what can be read.
func readMeta(file io.ReaderAt, off int64, id uint64) (Meta, error) {
	b := make([]byte, pageHeader+metaSize)
	if _, err := file.ReadAt(b, off); err != nil {
		return Meta{}, fmt.Errorf("meta page %d: %w", id, err)
	}
	head, m := readHeader(b), b[pageHeader:]
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	meta := Meta{pageSize: uint64(u32(m[8:])), root: u64(m[16:]), freelist: u64(m[32:]), high: u64(m[40:]), Txid: u64(m[48:]), sum: u64(m[56:])}
	copy(meta.raw[:], m)
	switch {
	case u32(m) != boltMagic:
		return meta, fmt.Errorf("meta page %d: not a bbolt file", id)
	case u32(m[4:]) != boltVersion:
		return meta, fmt.Errorf("meta page %d: bbolt version %d", id, u32(m[4:]))
	case head != (pageHead{id: id, flags: pageMeta}):
		return meta, fmt.Errorf("meta page %d: header %+v", id, head)
	case meta.pageSize < 1<<10 || meta.pageSize > 1<<24 || meta.pageSize&(meta.pageSize-1) != 0:
		return meta, fmt.Errorf("meta page %d: pages of %d bytes", id, meta.pageSize)
	}
	meta.framed = u32(m[12:]) == 0
	if meta.sumWith(meta.Txid) != meta.sum {
		return meta, fmt.Errorf("meta page %d: wrong checksum", id)
	}
	return meta, nil
}

// sumWith returns the checksum that the page would have with a transaction.
func (m Meta) sumWith(Txid uint64) uint64 {
	binary.NativeEndian.PutUint64(m.raw[48:], Txid)
	sum := fnv.New64a()
	sum.Write(m.raw[:metaSize-8])
	return sum.Sum64()
}

// pageHead is the header of a page.
type pageHead struct {
	id       uint64
	flags    uint16
	count    int64
	overflow uint64
}

func readHeader(b []byte) pageHead {
	return pageHead{
		id:       binary.NativeEndian.Uint64(b),
		flags:    binary.NativeEndian.Uint16(b[8:]),
		count:    int64(binary.NativeEndian.Uint16(b[10:])),
		overflow: uint64(binary.NativeEndian.Uint32(b[12:])),
	}
}

// rawPage is a page with its overflow, or a small bucket's page that lies in
// its parent's value. Only the first part is in memory: a body may have many
// megabytes, and nothing here needs them.
type rawPage struct {
	pageHead
	file   io.ReaderAt
	start  int64  // of the page in the file
	length int64  // with its overflow
	first  []byte // the first bytes
}

// bytes returns n bytes of the page, which lie within its length.
func (p *rawPage) bytes(off, n int64) ([]byte, error) {
	if off+n <= int64(len(p.first)) {
		return p.first[off : off+n], nil
	}
	b := make([]byte, n)
	if _, err := p.file.ReadAt(b, p.start+off); err != nil {
		return nil, p.wrong("%w", err)
	}
	return b, nil
}

func (p *rawPage) wrong(format string, args ...any) error {
	return fmt.Errorf("page at byte %d: %w", p.start, fmt.Errorf(format, args...))
}

// elements returns where the keys and values begin.
func (p *rawPage) elements() (int64, error) {
	at := pageHeader + p.count*pageElement
	if at > p.length {
		return 0, p.wrong("%d elements", p.count)
	}
	return at, nil
}

// item returns the key of element i, which must begin at the given place, and
// moves the place behind its value. bbolt leaves no gaps, so hardly a bit can
// change here unnoticed.
func (p *rawPage) item(i int64, at *int64, pos, ksize, vsize uint32) ([]byte, error) {
	start := pageHeader + i*pageElement + int64(pos)
	end := start + int64(ksize) + int64(vsize)
	if start != *at || end > p.length || ksize == 0 || ksize > boltMaxKey {
		return nil, p.wrong("element %d lies at %d, with %d and %d bytes", i, start, ksize, vsize)
	}
	*at = end
	return p.bytes(start, int64(ksize))
}

// ordered checks that the keys rise, from low to below high.
func (p *rawPage) ordered(keys [][]byte, low, high []byte) error {
	for i, k := range keys {
		if i > 0 && bytes.Compare(keys[i-1], k) >= 0 {
			return p.wrong("key %d out of order", i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if bytes.Compare(keys[0], low) < 0 || high != nil && bytes.Compare(keys[len(keys)-1], high) >= 0 {
		return p.wrong("keys outside of their branch")
	}
	return nil
}
