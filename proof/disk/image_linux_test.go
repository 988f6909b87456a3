//go:build linux && (amd64 || arm64)

package disk

import (
	"github.com/idem-go/idem/proof/syscalls"
	"math/rand/v2"
	"slices"
)

// powerSector is what a disk writes whole or not at all, in bytes.
const powerSector = 512

// powerDisk is what of a log has reached the disk for certain, and what may have.
type powerDisk struct {
	dir     uint64
	files   map[uint64]*powerFile
	names   map[string]uint64
	pending []syscalls.Op // changes of names that the directory's sync hasn't made durable
	skip    func(i int, op syscalls.Op) bool
}

type powerFile struct {
	data    []byte
	pending []syscalls.Op // since the last sync
}

// newPowerDisk is an empty disk; it loses the syncs that skip picks.
func newPowerDisk(dir uint64, skip func(i int, op syscalls.Op) bool) *powerDisk {
	return &powerDisk{dir: dir, files: map[uint64]*powerFile{}, names: map[string]uint64{}, skip: skip}
}

// apply takes operation i of a log.
func (d *powerDisk) apply(i int, op syscalls.Op) {
	switch op.Kind {
	case syscalls.Link, syscalls.Rename, syscalls.Remove:
		d.pending = append(d.pending, op)
		return
	case syscalls.Sync:
		if d.skip != nil && d.skip(i, op) {
			return
		}
		if op.File == d.dir {
			for _, p := range d.pending {
				powerNameOp(d.names, p)
			}
			d.pending = nil
			return
		}
	}
	f := d.files[op.File]
	if f == nil {
		f = &powerFile{}
		d.files[op.File] = f
	}
	if op.Kind != syscalls.Sync {
		f.pending = append(f.pending, op)
		return
	}
	for _, p := range f.pending {
		f.data = powerFileOp(f.data, p)
	}
	f.pending = nil
}

func powerNameOp(names map[string]uint64, op syscalls.Op) {
	if op.Kind == syscalls.Remove {
		delete(names, op.Name)
		return
	}
	names[op.Name] = op.File
}

// powerFileOp applies a write or a change of size.
func powerFileOp(data []byte, op syscalls.Op) []byte {
	end := int(op.Off) + len(op.Data)
	if op.Kind == syscalls.Size && end < len(data) {
		return data[:end]
	}
	if end > len(data) {
		data = append(data, make([]byte, end-len(data))...)
	}
	copy(data[op.Off:], op.Data)
	return data
}

// powerLoss is what a power cut does to what wasn't synced.
type powerLoss int

const (
	powerKeepAll  powerLoss = iota // all of it was on the disk already
	powerLoseAll                   // nothing was
	powerPrefix                    // what came first was
	powerAnyWrite                  // some writes were, in any order
	powerTorn                      // some sectors were
	powerLosses
)

func (l powerLoss) String() string {
	return [...]string{"kept", "lost", "cut off", "reordered", "torn"}[l]
}

// image returns the bytes that are under a name after a power cut, if there are any.
func (d *powerDisk) image(name string, loss powerLoss, r *rand.Rand) ([]byte, bool) {
	names := map[string]uint64{}
	for n, file := range d.names {
		names[n] = file
	}
	for _, op := range d.pending[:powerKept(len(d.pending), loss, r)] {
		powerNameOp(names, op)
	}
	file, ok := names[name]
	if !ok {
		return nil, false
	}
	f := d.files[file]
	data := slices.Clone(f.data)
	for i, op := range f.pending[:powerKept(len(f.pending), loss, r)] {
		switch {
		case loss == powerTorn && op.Kind == syscalls.Write:
			data = powerTear(data, op, powerSector, r)
		case loss < powerAnyWrite || i >= 0 && r.IntN(2) == 0:
			data = powerFileOp(data, op)
		}
	}
	return data, true
}

// powerKept returns how many of n operations are to be looked at.
func powerKept(n int, loss powerLoss, r *rand.Rand) int {
	switch loss {
	case powerLoseAll:
		return 0
	case powerPrefix:
		return r.IntN(n + 1)
	}
	return n
}

// powerTear applies some units of a write.
func powerTear(data []byte, op syscalls.Op, unit int, r *rand.Rand) []byte {
	for at := 0; at < len(op.Data); at += unit {
		if r.IntN(2) == 0 {
			part := op.Data[at:min(at+unit, len(op.Data))]
			data = powerFileOp(data, syscalls.Op{Kind: syscalls.Write, Off: op.Off + int64(at), Data: part})
		}
	}
	return data
}
