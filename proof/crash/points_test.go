package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// row is one kind of call, dying at one point.
type row struct {
	kind  string
	point crash.Point
	nth   int // 0 is the first time

	lost     bool     // an earlier call of the name was left Pending
	recovery []string // how what is left is found out: kinds of callOf
	pending  int      // entries that the dead process left Pending
	sent     [2]int   // requests of the dead process that arrived: least and most
	effects  int      // after the recovery
}

var pointNames = map[crash.Point]string{
	crash.Uncommitted: "before commit",
	crash.Committed:   "committed, not sent",
	crash.Sent:        "sent, no answer",
	crash.Answered:    "answered, not committed",
	crash.Settled:     "committed",
}

// table is the table of docs/design.md: what is known after each point, for
// each kind of call.
func table() []row {
	var cells []row
	for _, kind := range []string{"Do named", "Do anonymous", "Do with key", "Transport with an SDK's key"} {
		again := []string{kind, "Resume", "Run"}
		if kind == "Do anonymous" {
			again = again[1:] // nobody but Resume and Run can know that it is the same
		}
		cells = append(cells,
			row{kind: kind, point: crash.Uncommitted, recovery: []string{"Resume"}},
			row{kind: kind, point: crash.Uncommitted, recovery: []string{kind}, effects: 1},
			row{kind: kind, point: crash.Committed, recovery: again, pending: 1, effects: 1},
			row{kind: kind, point: crash.Sent, recovery: again, pending: 1, sent: [2]int{0, 1}, effects: 1},
			row{kind: kind, point: crash.Answered, recovery: again, pending: 1, sent: [2]int{1, 1}, effects: 1},
			row{kind: kind, point: crash.Answered, nth: 2, recovery: again, pending: 1, sent: [2]int{1, 1}, effects: 1},
			row{kind: kind, point: crash.Settled, recovery: again, sent: [2]int{1, 1}, effects: 1},
		)
	}
	queue := []string{"Enqueue, Run", "Do named", "Resume", "Run"}
	cells = append(cells,
		row{kind: "Enqueue, Run", point: crash.Uncommitted, recovery: []string{"Resume", "Run"}},
		row{kind: "Enqueue, Run", point: crash.Uncommitted, recovery: []string{"Enqueue, Run"}, effects: 1},
		row{kind: "Enqueue, Run", point: crash.Committed, recovery: queue, pending: 1, effects: 1},
		row{kind: "Enqueue, Run", point: crash.Committed, nth: 2, recovery: queue, pending: 1, effects: 1},
		row{kind: "Enqueue, Run", point: crash.Sent, recovery: queue, pending: 1, sent: [2]int{0, 1}, effects: 1},
		row{kind: "Enqueue, Run", point: crash.Answered, recovery: queue, pending: 1, sent: [2]int{1, 1}, effects: 1},
		row{kind: "Enqueue, Run", point: crash.Settled, recovery: []string{"Do named", "Resume", "Run"}, sent: [2]int{1, 1}, effects: 1},
	)
	lost := []string{"Do named", "Resume", "Run"}
	return append(cells,
		row{kind: "Resume", lost: true, point: crash.Sent, recovery: lost, pending: 1, sent: [2]int{0, 1}, effects: 1},
		row{kind: "Resume", lost: true, point: crash.Answered, recovery: lost, pending: 1, sent: [2]int{1, 1}, effects: 1},
		row{kind: "Resume", lost: true, point: crash.Settled, recovery: lost, sent: [2]int{1, 1}, effects: 1},
		row{kind: "Settle", lost: true, point: crash.Answered, recovery: lost, pending: 1, effects: 1},
		row{kind: "Settle", lost: true, point: crash.Settled, recovery: lost, effects: 0}, // the finding is believed
		row{kind: "Reserve", point: crash.Uncommitted, recovery: []string{"Reserve", "Resume"}},
		row{kind: "Reserve", point: crash.Committed, recovery: []string{"Reserve", "Resume"}, pending: 1},
	)
}

// With IDEM_CRASH=all each cell dies in each way; otherwise the ways take turns.
func TestACallThatDiesAnywhereHappensOnce(t *testing.T) {
	turn := 0
	for _, cell := range table() {
		cell.nth = max(cell.nth, 1)
		for _, recovery := range cell.recovery {
			ways := allWays[turn%len(allWays) : turn%len(allWays)+1]
			if os.Getenv("IDEM_CRASH") == "all" {
				ways = allWays
			}
			turn++
			for _, way := range ways {
				name := fmt.Sprintf("%s/%s %d/%s/%s", cell.kind, pointNames[cell.point], cell.nth, way, recovery)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					dieAndRecover(t, cell, way, recovery)
				})
			}
		}
	}
}

func dieAndRecover(t *testing.T, cell row, way, recovery string) {
	srv := mockserver.Start(t, nil)
	job := task{
		Kind: cell.kind, Journal: filepath.Join(t.TempDir(), "journal"), URL: srv.URL,
		Point: cell.point, Nth: cell.nth, Way: way,
	}
	before := 0
	if cell.lost {
		job.Key, before = lose(t, srv, job.Journal), 1
	}
	runToDeath(t, job)

	c, err := rig.Open(job.Journal, rig.Options())
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, cell.pending, rig.Pending(c), "entries left Pending")
	arrived := len(srv.Requests()) - before
	require.GreaterOrEqual(t, arrived, cell.sent[0], "requests of the dead process")
	require.LessOrEqual(t, arrived, cell.sent[1], "requests of the dead process")

	if cell.kind == "Reserve" {
		recoverReservation(t, c, cell, recovery)
	} else {
		require.NoError(t, callOf[recovery](c, srv.URL))
		require.Zero(t, rig.Pending(c), "nothing stays Pending after %s", recovery)
	}
	rig.Ledger(t, srv, rig.Value, cell.effects)
	if cell.kind == "Do named" || cell.kind == "Do with key" || cell.kind == "Enqueue, Run" {
		recalls(t, c, srv, cell)
	}
}

// lose leaves the name Pending, its request lost before the effect.
func lose(t *testing.T, srv *mockserver.Server, journal string) idem.Key {
	t.Helper()
	srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
	opts := rig.Options()
	opts.Retry.MaxAttempts = 1
	c, err := idem.Open(journal, opts)
	require.NoError(t, err)
	defer c.Close()
	require.ErrorIs(t, callOf["Do named"](c, srv.URL), idem.ErrExhausted)
	e, err := c.Lookup(context.Background(), rig.Name)
	require.NoError(t, err)
	return e.Key
}

// recoverReservation expects the reservation to be durable exactly if it was
// committed, and that nothing ever sends it.
func recoverReservation(t *testing.T, c *idem.Client, cell row, recovery string) {
	t.Helper()
	e, err := c.Lookup(context.Background(), rig.Name)
	if cell.point == crash.Uncommitted {
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
	key, err := c.Reserve(context.Background(), rig.Name, []byte(rig.Body))
	require.NoError(t, err)
	if e.Key != "" {
		require.Equal(t, e.Key, key, "a reserved key outlives the process")
	}
}

// recalls expects that the call made once more is answered from the journal,
// where there is one, and never has a second effect.
func recalls(t *testing.T, c *idem.Client, srv *mockserver.Server, cell row) {
	t.Helper()
	call := cell.kind
	if call == "Enqueue, Run" {
		call = "Do named"
	}
	arrived := len(srv.Requests())
	require.NoError(t, callOf[call](c, srv.URL))
	if cell.effects == 1 {
		require.Len(t, srv.Requests(), arrived, "recalled without network")
	}
	rig.Ledger(t, srv, rig.Value, 1)
}
