package idem_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// verdictDone is a dialect that knows all answers about keys.
var verdictDone = idem.Dialect{
	Name:        "knowing",
	InFlight:    []idem.Match{{Path: "code", Value: "in_progress"}},
	Mismatch:    []idem.Match{{Path: "code", Value: "mismatch"}},
	AlreadyDone: []idem.Match{{Path: "code", Value: "done"}},
	NotDone:     []idem.Match{{Path: "code", Value: "expired"}},
	Resource:    idem.Resource{Path: "id", URL: "/v1/charges/{id}"},
}

// TestMatchersAreReadBeforeTheTable gives each matcher statuses that the table
// reads otherwise.
func TestMatchersAreReadBeforeTheTable(t *testing.T) {
	for _, v := range []struct {
		name      string
		status    int
		code      string
		ownKey    bool
		before    bool
		fate      idem.Fate
		state     string
		mismatch  bool
		responded bool
	}{
		{name: "in flight as a 400", status: 400, code: "in_progress", fate: idem.FateUnknown, state: "pending"},
		{name: "in flight as a 500", status: 500, code: "in_progress", fate: idem.FateUnknown, state: "pending"},
		{name: "not done as a 200", status: 200, code: "expired", fate: idem.FateNotDone, state: "settled", responded: true},
		{name: "not done as a 500", status: 500, code: "expired", fate: idem.FateNotDone, state: "settled", responded: true},
		{name: "not done, after a lost answer", status: 500, code: "expired", before: true, fate: idem.FateUnknown, state: "pending"},
		{name: "mismatch of a minted key", status: 422, code: "mismatch", fate: idem.FateNotDone, state: "settled", mismatch: true},
		{name: "mismatch of a caller's key", status: 422, code: "mismatch", ownKey: true, fate: idem.FateUnknown, state: "pending", mismatch: true},
		{name: "mismatch after a lost answer", status: 422, code: "mismatch", before: true, fate: idem.FateUnknown, state: "ambiguous", mismatch: true},
		{name: "mismatch of a caller's key after a lost answer", status: 409, code: "mismatch", ownKey: true, before: true,
			fate: idem.FateUnknown, state: "ambiguous", mismatch: true},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				retry := verdictPatient
				retry.MaxAttempts = 1
				steps := []verdictStep{verdictAnswer(v.status, `{"code":"`+v.code+`"}`)}
				if v.before {
					retry.MaxAttempts, steps = 2, append([]verdictStep{verdictLost}, steps...)
				}
				c := verdictClient(t, base, idem.Options{Retry: retry, Dialect: verdictDone})
				defer c.Close()
				base.script(steps...)
				req := verdictNamed("row")
				if v.ownKey {
					req = req.WithContext(idem.WithKey(req.Context(), idem.NewKey()))
				}
				resp, err := c.Do(req)
				require.Equal(t, v.fate, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, v.state, verdictState(t, c, "row"))
				require.Equal(t, v.responded, err == nil, "%v", err)
				if v.mismatch {
					require.ErrorIs(t, err, idem.ErrMismatch)
				}
				require.Len(t, base.sends(), len(steps))
			})
		})
	}
}

func TestAlreadyDoneIsDoneWithItsResource(t *testing.T) {
	const done, charge, other = `{"code":"done","id":"ch_1"}`, `{"id":"ch_1","amount":500}`, `{"id":"ch_1","amount":900}`
	lost := []verdictStep{verdictLost}
	for _, v := range []struct {
		name     string
		ownKey   bool
		steps    []verdictStep
		fate     idem.Fate
		state    string
		mismatch bool
	}{
		{name: "after a lost answer", steps: append(lost, verdictAnswer(409, done), verdictAnswer(200, charge)), fate: idem.FateDone, state: "settled"},
		{name: "after a lost answer, the resource is another", steps: append(lost, verdictAnswer(409, done), verdictAnswer(200, other)),
			fate: idem.FateUnknown, state: "ambiguous", mismatch: true},
		{name: "a caller's key, nothing before, the same resource", ownKey: true,
			steps: []verdictStep{verdictAnswer(409, done), verdictAnswer(200, charge)}, fate: idem.FateDone, state: "settled"},
		{name: "a caller's key, nothing before, another resource", ownKey: true,
			steps: []verdictStep{verdictAnswer(409, done), verdictAnswer(200, other)}, fate: idem.FateUnknown, state: "ambiguous", mismatch: true},
		{name: "a caller's key, nothing before, nothing to compare", ownKey: true,
			steps: []verdictStep{verdictAnswer(409, done), verdictAnswer(200, `{"id":"ch_1"}`)}, fate: idem.FateUnknown, state: "ambiguous", mismatch: true},
		{name: "the fetch fails once", steps: append(lost, verdictAnswer(409, done), verdictAnswer(503, "{}"), verdictAnswer(409, done), verdictAnswer(200, charge)),
			fate: idem.FateDone, state: "settled"},
		{name: "the fetch is cut once", steps: append(lost, verdictAnswer(409, done), verdictCut(200, false), verdictAnswer(409, done), verdictAnswer(200, charge)),
			fate: idem.FateDone, state: "settled"},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: verdictDone})
				defer c.Close()
				base.script(v.steps...)
				req := verdictNamed("done")
				if v.ownKey {
					req = req.WithContext(idem.WithKey(req.Context(), idem.NewKey()))
				}
				resp, err := c.Do(req)
				require.Equal(t, v.fate, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, v.state, verdictState(t, c, "done"))
				require.Len(t, base.sends(), len(v.steps))
				if v.mismatch {
					require.ErrorIs(t, err, idem.ErrMismatch)
					return
				}
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
			})
		})
	}
}

// The key is the caller's, nothing of ours was sent under it before: "already
// done" may speak of another payload until the resource was compared. A fetch
// that fails in between compares nothing.
func TestAFailedFetchProvesNothingForACallersKey(t *testing.T) {
	const done = `{"code":"done","id":"ch_1"}`
	for _, after := range []verdictStep{verdictAnswer(503, "{}"), verdictAnswer(200, `{"id":"ch_1"}`)} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			retry := verdictPatient
			retry.MaxAttempts = 2
			c := verdictClient(t, base, idem.Options{Retry: retry, Dialect: verdictDone})
			defer c.Close()
			base.script(verdictAnswer(409, done), verdictAnswer(503, "{}"), verdictAnswer(409, done), after)
			req := verdictNamed("done")
			resp, err := c.Do(req.WithContext(idem.WithKey(req.Context(), idem.NewKey())))
			require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err), "%v", err)
			require.NotEqual(t, "settled", verdictState(t, c, "done"))
		})
	}
}

func TestAnUncomparedAlreadyDoneIsNotBelievedAfterARestart(t *testing.T) {
	const done = `{"code":"done","id":"ch_1"}`
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		path := t.TempDir() + "/journal.db"
		opts := &idem.Options{Base: base, Retry: idem.RetryPolicy{MaxAttempts: 1}, Dialect: verdictDone}
		c, err := idem.Open(path, opts)
		require.NoError(t, err)
		base.script(verdictAnswer(409, done), verdictAnswer(503, "{}"))
		key := idem.NewKey()
		req := verdictNamed("done")
		req = req.WithContext(idem.WithKey(req.Context(), key))
		_, err = c.Do(req)
		require.Error(t, err)
		require.NoError(t, c.Close())

		c, err = idem.Open(path, opts)
		require.NoError(t, err)
		defer c.Close()
		base.script(verdictAnswer(409, done), verdictAnswer(200, `{"id":"ch_1"}`))
		_, err = c.Resume(context.Background(), nil)
		require.NoError(t, err)
		e, err := c.LookupKey(context.Background(), key)
		require.NoError(t, err)
		require.NotEqual(t, idem.FateDone, e.Fate, "another payload's end was taken for this one's")
	})
}
