// Package pagecheck tells whether bbolt can read a file. bbolt trusts its file: a
// damaged page makes it panic, at times in a goroutine of its own that no caller can
// recover. So the pages are checked before bbolt sees them, by the plain file, with
// nothing believed that wasn't compared.
package pagecheck

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/idem-go/idem/keystore"
)

// pageChecker walks through the pages of a file that can be reached.
type pageChecker struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	high     uint64   // pages from here on are unused
	seen     []uint64 // a bit for every page below high
	buckets  [][]byte // names of the top-level buckets
}

// Check returns an ErrCorrupt unless bbolt can read the file and finds the
// given buckets in it.
func Check(file io.ReaderAt, size int64, buckets ...[]byte) error {
	c := &pageChecker{file: file, size: size}
	err := c.check()
	if err != nil {
		return fmt.Errorf("%w: %w", keystore.ErrCorrupt, err)
	}
	for _, b := range buckets {
		if !slices.ContainsFunc(c.buckets, func(name []byte) bool { return bytes.Equal(b, name) }) {
			return fmt.Errorf("%w: no bucket %q, so not a journal of package idem", keystore.ErrCorrupt, b)
		}
	}
	return nil
}

func (c *pageChecker) check() error {
	meta, err := NewestMeta(c.file, c.size)
	if err != nil {
		return err
	}
	c.pageSize, c.high = int64(meta.pageSize), meta.high
	if c.high < 3 || c.high > uint64(c.size/c.pageSize) {
		return fmt.Errorf("%d pages in a file of %d bytes", c.high, c.size)
	}
	c.seen = make([]uint64, c.high/64+1)
	if err := c.tree(meta.root, nil, nil, 0, true); err != nil {
		return err
	}
	return c.freelist(meta.freelist)
}

// open reads a page that must be in use exactly once.
func (c *pageChecker) open(id uint64) (*rawPage, error) {
	if id < 2 || id >= c.high {
		return nil, fmt.Errorf("page %d of %d", id, c.high)
	}
	p := &rawPage{file: c.file, start: int64(id) * c.pageSize, first: make([]byte, c.pageSize)}
	if _, err := c.file.ReadAt(p.first, p.start); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	p.pageHead = readHeader(p.first)
	if p.id != id {
		return nil, fmt.Errorf("page %d says it is page %d", id, p.id)
	}
	if p.overflow >= c.high-id {
		return nil, fmt.Errorf("page %d has %d more of %d pages", id, p.overflow, c.high)
	}
	p.length = int64(p.overflow+1) * c.pageSize
	for i := id; i <= id+p.overflow; i++ {
		if c.mark(i) {
			return nil, fmt.Errorf("page %d is in use twice", i)
		}
	}
	return p, nil
}

// mark notes that a page is in use and returns whether it was already.
func (c *pageChecker) mark(id uint64) bool {
	bit := uint64(1) << (id % 64)
	was := c.seen[id/64]&bit != 0
	c.seen[id/64] |= bit
	return was
}

// tree checks the pages of one bucket from page id down. All keys must be at
// least low and less than high, where these are set.
func (c *pageChecker) tree(id uint64, low, high []byte, depth int, top bool) error {
	p, err := c.open(id)
	if err != nil {
		return err
	}
	switch {
	case depth > maxPageDepth:
		return p.wrong("too deep")
	case p.flags == pageLeaf:
		if p.count == 0 && depth > 0 {
			return p.wrong("empty leaf")
		}
		return c.leaf(p, low, high, top)
	case p.flags == pageBranch:
		return c.branch(p, low, high, depth, top)
	}
	return p.wrong("flags %#x", p.flags)
}

// branch checks a branch page and its children.
func (c *pageChecker) branch(p *rawPage, low, high []byte, depth int, top bool) error {
	keys := make([][]byte, 0, p.count)
	children := make([]uint64, 0, p.count)
	at, err := p.elements()
	if err != nil {
		return err
	}
	if p.count == 0 {
		return p.wrong("empty branch")
	}
	for i := range p.count {
		e, err := p.bytes(pageHeader+i*pageElement, pageElement)
		if err != nil {
			return err
		}
		pos, ksize := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
		children = append(children, binary.NativeEndian.Uint64(e[8:]))
		key, err := p.item(i, &at, pos, ksize, 0)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	if err := p.ordered(keys, low, high); err != nil {
		return err
	}
	for i, child := range children {
		next := high
		if i+1 < len(keys) {
			next = keys[i+1]
		}
		if err := c.tree(child, keys[i], next, depth+1, top); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a leaf page and the buckets that begin on it. In the top bucket
// there is nothing but buckets, and below them none.
func (c *pageChecker) leaf(p *rawPage, low, high []byte, top bool) error {
	keys := make([][]byte, 0, p.count)
	at, err := p.elements()
	if err != nil {
		return err
	}
	for i := range p.count {
		e, err := p.bytes(pageHeader+i*pageElement, pageElement)
		if err != nil {
			return err
		}
		u32 := binary.NativeEndian.Uint32
		flags, pos, ksize, vsize := u32(e), u32(e[4:]), u32(e[8:]), u32(e[12:])
		key, err := p.item(i, &at, pos, ksize, vsize)
		if err != nil {
			return err
		}
		keys = append(keys, key)
		if isBucket := flags == 1; flags > 1 || isBucket != top {
			return p.wrong("element %d has flags %#x", i, flags)
		}
		if top {
			if err := c.bucket(p, key, at-int64(vsize), int64(vsize)); err != nil {
				return err
			}
		}
	}
	return p.ordered(keys, low, high)
}

// bucket checks the bucket whose header is a leaf's value: its pages, or the
// one small page that lies behind the header.
func (c *pageChecker) bucket(p *rawPage, name []byte, off, n int64) error {
	if n < bucketSize || n > bucketSize+c.pageSize {
		return p.wrong("bucket header of %d bytes", n)
	}
	v, err := p.bytes(off, n)
	if err != nil {
		return err
	}
	c.buckets = append(c.buckets, bytes.Clone(name))
	if root := binary.NativeEndian.Uint64(v); root != 0 {
		return c.tree(root, nil, nil, 0, false)
	}
	if n < bucketSize+pageHeader {
		return p.wrong("inline bucket of %d bytes", n)
	}
	inline := &rawPage{start: p.start + off + bucketSize, length: n - bucketSize, first: v[bucketSize:]}
	inline.pageHead = readHeader(inline.first)
	if inline.id != 0 || inline.flags != pageLeaf || inline.overflow != 0 {
		return p.wrong("inline bucket with id %d, flags %#x", inline.id, inline.flags)
	}
	return c.leaf(inline, nil, nil, false)
}

// freelist checks that the free pages exist and that nothing uses them.
func (c *pageChecker) freelist(id uint64) error {
	if id == noFreelist {
		return nil
	}
	p, err := c.open(id)
	if err != nil {
		return err
	}
	if p.flags != pageFreelist {
		return p.wrong("flags %#x of a freelist", p.flags)
	}
	// A count that doesn't fit in its field stands before the ids.
	start, count := int64(pageHeader), uint64(p.count)
	if p.count == 0xFFFF {
		b, err := p.bytes(start, 8)
		if err != nil {
			return err
		}
		start, count = start+8, binary.NativeEndian.Uint64(b)
	}
	if count > uint64(p.length-start)/8 {
		return p.wrong("%d free pages", count)
	}
	ids, err := p.bytes(start, int64(count)*8)
	if err != nil {
		return err
	}
	for ; len(ids) > 0; ids = ids[8:] {
		free := binary.NativeEndian.Uint64(ids)
		if free < 2 || free >= c.high || c.mark(free) {
			return p.wrong("page %d is not free", free)
		}
	}
	return nil
}
