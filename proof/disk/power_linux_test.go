//go:build linux && (amd64 || arm64)

package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/proof/rig"
	"github.com/idem-go/idem/proof/syscalls"
)

// powerTally counts what came of the cuts.
type powerTally struct {
	cuts, opened, corrupt, absent, lost int
	first                               string // the first loss
}

func (y *powerTally) add(cut int, loss powerLoss, err error) {
	y.cuts++
	switch {
	case err == nil:
		y.opened++
	case errors.Is(err, errPowerAbsent):
		y.absent++
	case errors.Is(err, idem.ErrCorrupt):
		y.corrupt++
	default:
		y.lost++
		if y.first == "" {
			y.first = fmt.Sprintf("operation %d, %v: %v", cut, loss, err)
		}
	}
}

func (y *powerTally) join(o *powerTally) {
	y.cuts, y.opened, y.absent, y.corrupt, y.lost = y.cuts+o.cuts, y.opened+o.opened, y.absent+o.absent, y.corrupt+o.corrupt, y.lost+o.lost
	if y.first == "" {
		y.first = o.first
	}
}

func (y *powerTally) String() string {
	return fmt.Sprintf("%d cuts: %d opened, %d before the file had its name, %d ErrCorrupt, %d lost", y.cuts, y.opened, y.absent, y.corrupt, y.lost)
}

// errPowerAbsent is that there is no file, and none was promised.
var errPowerAbsent = errors.New("no file")

// powerPlan says where and how a log is cut off.
type powerPlan struct {
	seed   uint64
	rounds int                         // each operation is cut off in each way this often; 0: in one way, and they take turns
	skip   func(int, syscalls.Op) bool // picks syncs that are lost
	until  int                         // the last operation; 0 is that of the log
}

// ways returns how to cut a log off after an operation.
func (p *powerPlan) ways(cut int) []powerLoss {
	if p.rounds == 0 {
		return []powerLoss{powerLoss(cut) % powerLosses}
	}
	var ways []powerLoss
	for range p.rounds {
		ways = append(ways, powerKeepAll, powerLoseAll, powerPrefix, powerAnyWrite, powerTorn)
	}
	return ways
}

// powerCuts cuts a log off after every operation and checks what is left.
func powerCuts(t *testing.T, log *powerLog, plan powerPlan) *powerTally {
	t.Helper()
	if plan.until == 0 {
		plan.until = len(log.Ops)
	}
	dir := rig.FastDir(t)
	total := new(powerTally)
	var wg sync.WaitGroup
	var mu sync.Mutex
	workers := runtime.GOMAXPROCS(0)
	for worker := range workers {
		path := filepath.Join(dir, strconv.Itoa(worker))
		wg.Go(func() {
			tally := powerCutSome(path, log, plan, worker, workers)
			mu.Lock()
			defer mu.Unlock()
			total.join(tally)
		})
	}
	wg.Wait()
	return total
}

// powerCutSome makes every workers-th cut. What a cut does depends on the seed and its
// place alone.
func powerCutSome(path string, log *powerLog, plan powerPlan, worker, workers int) *powerTally {
	tally := new(powerTally)
	disk := newPowerDisk(log.Dir, plan.skip)
	for cut := 0; cut <= plan.until; cut++ {
		if cut > 0 {
			disk.apply(cut-1, log.Ops[cut-1])
		}
		if cut%workers != worker {
			continue
		}
		r := rand.New(rand.NewPCG(plan.seed, uint64(cut)))
		for _, loss := range plan.ways(cut) {
			data, ok := disk.image("journal", loss, r)
			tally.add(cut, loss, powerCheck(path, data, ok, log, cut))
		}
	}
	return tally
}

// powerCheck opens what a cut has left, and compares it with all that had been said.
func powerCheck(path string, data []byte, ok bool, log *powerLog, cut int) error {
	marks := powerMarksAt(log, cut)
	if !ok {
		if len(marks) > 0 {
			return errors.New("the file has no name")
		}
		return errPowerAbsent
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	return powerHoldAll(path, powerSample(marks, cut))
}

// powerHoldAll opens a journal and tells whether it holds all that it had said.
func powerHoldAll(path string, marks []powerMark) error {
	ks, err := idem.OpenKeystore(path, nil)
	if err != nil {
		return err
	}
	defer ks.Close()
	looked := &unswept{ks}
	clients := map[string]*idem.Client{}
	for _, scope := range []string{powerScope, powerBatch} {
		opts := powerOptions(scope, nil)
		c, err := idem.New(looked, opts)
		if err != nil {
			return err
		}
		defer c.Close()
		clients[scope] = c
	}
	for _, m := range marks {
		if err := powerHolds(clients[m.Scope], m); err != nil {
			return fmt.Errorf("%q: %w", m.Name, err)
		}
	}
	return nil
}

// powerMarksAt returns the last mark of each name.
func powerMarksAt(log *powerLog, cut int) map[string]powerMark {
	marks := map[string]powerMark{}
	for _, m := range log.Marks {
		if m.At > cut {
			break
		}
		old := marks[m.Name]
		if old.Done && !m.Done && m.Key == old.Key {
			continue // sent again by nobody, held all the same
		}
		marks[m.Name] = m
	}
	return marks
}

// powerSample picks the promises that a cut endangers most, the last ones, and some of
// the others.
func powerSample(marks map[string]powerMark, cut int) []powerMark {
	list := slices.SortedFunc(maps.Values(marks), func(a, b powerMark) int {
		return cmp.Or(b.At-a.At, strings.Compare(a.Name, b.Name))
	})
	const last, every = 12, 8
	var picked []powerMark
	for i, m := range list {
		if i < last || (i+cut)%every == 0 {
			picked = append(picked, m)
		}
	}
	return picked
}

// powerHolds tells whether the journal still holds what it had said.
func powerHolds(c *idem.Client, m powerMark) error {
	if m.Key == "" {
		return nil
	}
	e, err := c.Lookup(context.Background(), m.Name)
	if err != nil {
		return fmt.Errorf("%v", err) // a record that is damaged is lost
	}
	if string(e.Key) != m.Key {
		return fmt.Errorf("key %s, was %s", e.Key, m.Key)
	}
	if !m.Done {
		return nil
	}
	if e.Fate != idem.FateDone || e.State != idem.StateSettled {
		return fmt.Errorf("%v and %v, was Done", e.State, e.Fate)
	}
	if m.Body == "" {
		return nil
	}
	resp, err := e.Response(context.Background())
	if err != nil {
		return fmt.Errorf("its result: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != m.Body {
		return fmt.Errorf("its result is %q, %v; was %q", body, err, m.Body)
	}
	return nil
}

// powerRounds is how often each cut is made in each way: IDEM_POWER.
func powerRounds(t *testing.T) int {
	t.Helper()
	s := os.Getenv("IDEM_POWER")
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func TestAPowerCutLosesNothingThatWasSaid(t *testing.T) {
	log := powerRecord(t, false)
	tally := powerCuts(t, log, powerPlan{seed: rig.Seed(t), rounds: powerRounds(t)})
	t.Logf("%d operations, %d promises; %v", len(log.Ops), len(log.Marks), tally)
	require.Zero(t, tally.lost, tally.first)
	require.Zero(t, tally.corrupt, "sectors are written whole, so every cut can be opened")
	for _, part := range []string{"creation", "growth", "batch", "compaction", "sweep", "close"} {
		require.Contains(t, log.Notes, part)
	}
}

// The checks are only worth something if they notice what a missing sync loses.
func TestALostSyncIsNoticed(t *testing.T) {
	log := powerRecord(t, false)
	seed := rig.Seed(t)
	created := log.Notes["calls"]
	journal := func(i int, op syscalls.Op) bool { return op.File != log.Dir && i > created }
	for name, plan := range map[string]powerPlan{
		"of the file":               {skip: journal, until: log.Notes["growth"]},
		"before the meta page":      {skip: powerBefore(log, true), until: log.Notes["growth"]},
		"behind the meta page":      {skip: powerBefore(log, false), until: log.Notes["growth"]},
		"of the directory":          {skip: func(_ int, op syscalls.Op) bool { return op.File == log.Dir }, until: log.Notes["growth"]},
		"of a file before its link": {skip: func(i int, op syscalls.Op) bool { return op.File != log.Dir && i < created }, until: created + 2},
	} {
		t.Run(name, func(t *testing.T) {
			plan.seed, plan.rounds = seed, 3
			tally := powerCuts(t, log, plan)
			t.Logf("%v", tally)
			require.NotZero(t, tally.lost+tally.corrupt, "nothing was lost")
		})
	}
}

// powerBefore picks the syncs of the journal whose next, or last, write is a meta page.
func powerBefore(log *powerLog, next bool) func(int, syscalls.Op) bool {
	return func(i int, op syscalls.Op) bool {
		if next {
			return i+1 < len(log.Ops) && powerMeta(log.Ops[i+1])
		}
		return i > 0 && powerMeta(log.Ops[i-1])
	}
}

// powerMeta tells whether bbolt writes a meta page.
func powerMeta(op syscalls.Op) bool {
	page := os.Getpagesize()
	return op.Kind == syscalls.Write && op.Off < int64(2*page) && len(op.Data) == page
}

// Some disks write less than a sector at once. Then a meta page may be a mix of the old
// one and the new one, whose commit nobody was told of. The journal opens with the other
// page wherever it is certain that this is what happened, and else it is ErrCorrupt.
func TestAMetaPageTornWithinItsSectorLosesNothing(t *testing.T) {
	log := powerRecord(t, false)
	r := rand.New(rand.NewPCG(rig.Seed(t), 0))
	path := filepath.Join(rig.FastDir(t), "journal")
	disk := newPowerDisk(log.Dir, nil)
	tally := new(powerTally)
	for i, op := range log.Ops {
		if powerMeta(op) && i > log.Notes["calls"] {
			old, ok := disk.image("journal", powerLoseAll, r)
			require.True(t, ok)
			if disk.names["journal"] == op.File {
				powerTearMeta(t, path, log, i, old, tally, r)
			}
		}
		disk.apply(i, op)
	}
	t.Logf("%v", tally)
	require.Zero(t, tally.lost, tally.first)
	require.Greater(t, tally.opened, tally.corrupt)
}

// powerTearMeta writes operation i, a meta page, in part, a word of 8 bytes at a time.
func powerTearMeta(t *testing.T, path string, log *powerLog, i int, old []byte, tally *powerTally, r *rand.Rand) {
	t.Helper()
	const words, txid = 10, 8 // as many as a page has in use, and which one is the transaction
	op := log.Ops[i]
	for range 4 {
		data := bytes.Clone(old)
		pick := r.IntN(1 << words)
		if r.IntN(2) == 0 {
			pick = 1<<r.IntN(words+1) - 1 // as a disk that writes from front to back
		}
		for w := range words {
			if pick>>w&1 == 1 {
				copy(data[op.Off+int64(8*w):], op.Data[8*w:8*w+8])
			}
		}
		err := powerCheck(path, data, true, log, i)
		tally.add(i, powerTorn, err)
		whole := bytes.Equal(data[op.Off:op.Off+8*words], op.Data[:8*words])
		if pick>>txid&1 == 0 || whole {
			full := bytes.Clone(data)
			copy(full[op.Off+8*txid:], op.Data[8*txid:8*txid+8])
			if !bytes.Equal(full[op.Off:op.Off+8*words], op.Data[:8*words]) || whole {
				require.NoError(t, err, "operation %d, words %b", i, pick)
			}
		}
	}
}

// A journal whose commits don't wait for the disk is told apart: a real one, recorded as
// it works.
func TestAJournalThatDoesntSyncIsNoticed(t *testing.T) {
	log := powerRecord(t, true)
	tally := powerCuts(t, log, powerPlan{seed: rig.Seed(t), rounds: 1, until: log.Notes["growth"]})
	t.Logf("%v", tally)
	require.NotZero(t, tally.lost)
}
