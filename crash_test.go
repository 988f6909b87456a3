package idem_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// crashCell is one kind of call, dying at one point.
type crashCell struct {
	kind  string
	point int
	nth   int // 0 is the first time

	lost     bool     // an earlier call of the name was left Pending
	recovery []string // how what is left is found out: kinds of crashCalls
	pending  int      // entries that the dead process left Pending
	sent     [2]int   // requests of the dead process that arrived: least and most
	effects  int      // after the recovery
}

var crashPoints = map[int]string{
	idem.PointUncommitted: "before commit",
	idem.PointCommitted:   "committed, not sent",
	idem.PointSent:        "sent, no answer",
	idem.PointAnswered:    "answered, not committed",
	idem.PointSettled:     "committed",
}

// crashCells is the table of docs/design.md: what is known after each point, for
// each kind of call.
func crashCells() []crashCell {
	var cells []crashCell
	for _, kind := range []string{"Do named", "Do anonymous", "Do with key", "Transport with an SDK's key"} {
		again := []string{kind, "Resume", "Run"}
		if kind == "Do anonymous" {
			again = again[1:] // nobody but Resume and Run can know that it is the same
		}
		cells = append(cells,
			crashCell{kind: kind, point: idem.PointUncommitted, recovery: []string{"Resume"}},
			crashCell{kind: kind, point: idem.PointUncommitted, recovery: []string{kind}, effects: 1},
			crashCell{kind: kind, point: idem.PointCommitted, recovery: again, pending: 1, effects: 1},
			crashCell{kind: kind, point: idem.PointSent, recovery: again, pending: 1, sent: [2]int{0, 1}, effects: 1},
			crashCell{kind: kind, point: idem.PointAnswered, recovery: again, pending: 1, sent: [2]int{1, 1}, effects: 1},
			crashCell{kind: kind, point: idem.PointAnswered, nth: 2, recovery: again, pending: 1, sent: [2]int{1, 1}, effects: 1},
			crashCell{kind: kind, point: idem.PointSettled, recovery: again, sent: [2]int{1, 1}, effects: 1},
		)
	}
	queue := []string{"Enqueue, Run", "Do named", "Resume", "Run"}
	cells = append(cells,
		crashCell{kind: "Enqueue, Run", point: idem.PointUncommitted, recovery: []string{"Resume", "Run"}},
		crashCell{kind: "Enqueue, Run", point: idem.PointUncommitted, recovery: []string{"Enqueue, Run"}, effects: 1},
		crashCell{kind: "Enqueue, Run", point: idem.PointCommitted, recovery: queue, pending: 1, effects: 1},
		crashCell{kind: "Enqueue, Run", point: idem.PointCommitted, nth: 2, recovery: queue, pending: 1, effects: 1},
		crashCell{kind: "Enqueue, Run", point: idem.PointSent, recovery: queue, pending: 1, sent: [2]int{0, 1}, effects: 1},
		crashCell{kind: "Enqueue, Run", point: idem.PointAnswered, recovery: queue, pending: 1, sent: [2]int{1, 1}, effects: 1},
		crashCell{kind: "Enqueue, Run", point: idem.PointSettled, recovery: []string{"Do named", "Resume", "Run"}, sent: [2]int{1, 1}, effects: 1},
	)
	lost := []string{"Do named", "Resume", "Run"}
	return append(cells,
		crashCell{kind: "Resume", lost: true, point: idem.PointSent, recovery: lost, pending: 1, sent: [2]int{0, 1}, effects: 1},
		crashCell{kind: "Resume", lost: true, point: idem.PointAnswered, recovery: lost, pending: 1, sent: [2]int{1, 1}, effects: 1},
		crashCell{kind: "Resume", lost: true, point: idem.PointSettled, recovery: lost, sent: [2]int{1, 1}, effects: 1},
		crashCell{kind: "Settle", lost: true, point: idem.PointAnswered, recovery: lost, pending: 1, effects: 1},
		crashCell{kind: "Settle", lost: true, point: idem.PointSettled, recovery: lost, effects: 0}, // the finding is believed
		crashCell{kind: "Reserve", point: idem.PointUncommitted, recovery: []string{"Reserve", "Resume"}},
		crashCell{kind: "Reserve", point: idem.PointCommitted, recovery: []string{"Reserve", "Resume"}, pending: 1},
	)
}

// With IDEM_CRASH=all each cell dies in each way; otherwise the ways take turns.
func TestACallThatDiesAnywhereHappensOnce(t *testing.T) {
	turn := 0
	for _, cell := range crashCells() {
		cell.nth = max(cell.nth, 1)
		for _, recovery := range cell.recovery {
			ways := crashWays[turn%len(crashWays) : turn%len(crashWays)+1]
			if os.Getenv("IDEM_CRASH") == "all" {
				ways = crashWays
			}
			turn++
			for _, way := range ways {
				name := fmt.Sprintf("%s/%s %d/%s/%s", cell.kind, crashPoints[cell.point], cell.nth, way, recovery)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					crashAndRecover(t, cell, way, recovery)
				})
			}
		}
	}
}

func crashAndRecover(t *testing.T, cell crashCell, way, recovery string) {
	srv := mockserver.Start(t, nil)
	job := crashJob{
		Kind: cell.kind, Journal: filepath.Join(t.TempDir(), "journal"), URL: srv.URL,
		Point: cell.point, Nth: cell.nth, Way: way,
	}
	before := 0
	if cell.lost {
		job.Key, before = crashLose(t, srv, job.Journal), 1
	}
	crashRunChild(t, job)

	c, err := crashOpen(job.Journal, crashOptions())
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, cell.pending, crashPending(c), "entries left Pending")
	arrived := len(srv.Requests()) - before
	require.GreaterOrEqual(t, arrived, cell.sent[0], "requests of the dead process")
	require.LessOrEqual(t, arrived, cell.sent[1], "requests of the dead process")

	if cell.kind == "Reserve" {
		crashRecoverReservation(t, c, cell, recovery)
	} else {
		require.NoError(t, crashCalls[recovery](c, srv.URL))
		require.Zero(t, crashPending(c), "nothing stays Pending after %s", recovery)
	}
	crashLedger(t, srv, crashValue, cell.effects)
	if cell.kind == "Do named" || cell.kind == "Do with key" || cell.kind == "Enqueue, Run" {
		crashRecalls(t, c, srv, cell)
	}
}

// crashLose leaves the name Pending, its request lost before the effect.
func crashLose(t *testing.T, srv *mockserver.Server, journal string) idem.Key {
	t.Helper()
	srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
	opts := crashOptions()
	opts.Retry.MaxAttempts = 1
	c, err := idem.Open(journal, opts)
	require.NoError(t, err)
	defer c.Close()
	require.ErrorIs(t, crashCalls["Do named"](c, srv.URL), idem.ErrExhausted)
	e, err := c.Lookup(context.Background(), crashName)
	require.NoError(t, err)
	return e.Key
}

// crashRecoverReservation expects the reservation to be durable exactly if it was
// committed, and that nothing ever sends it.
func crashRecoverReservation(t *testing.T, c *idem.Client, cell crashCell, recovery string) {
	t.Helper()
	e, err := c.Lookup(context.Background(), crashName)
	if cell.point == idem.PointUncommitted {
		require.ErrorIs(t, err, idem.ErrNotFound)
	} else {
		require.NoError(t, err)
	}
	if recovery == "Resume" {
		report, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Unknown: cell.pending}, report)
		return
	}
	key, err := c.Reserve(context.Background(), crashName, []byte(crashBody))
	require.NoError(t, err)
	if e.Key != "" {
		require.Equal(t, e.Key, key, "a reserved key outlives the process")
	}
}

// crashRecalls expects that the call made once more is answered from the journal,
// where there is one, and never has a second effect.
func crashRecalls(t *testing.T, c *idem.Client, srv *mockserver.Server, cell crashCell) {
	t.Helper()
	call := cell.kind
	if call == "Enqueue, Run" {
		call = "Do named"
	}
	arrived := len(srv.Requests())
	require.NoError(t, crashCalls[call](c, srv.URL))
	if cell.effects == 1 {
		require.Len(t, srv.Requests(), arrived, "recalled without network")
	}
	crashLedger(t, srv, crashValue, 1)
}
